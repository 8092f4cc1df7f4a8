package nvmlsim

import "testing"

func TestBuiltInModels(t *testing.T) {
	for _, name := range ModelNames() {
		m, err := LoadModel(name)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if m.Name != name {
			t.Errorf("model %s calls itself %s", name, m.Name)
		}
	}
}
