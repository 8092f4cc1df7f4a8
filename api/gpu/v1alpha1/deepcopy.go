package v1alpha1

import "slices"

// DeepCopy gives a copy that shares nothing with the original.
func (c *GpuConfig) DeepCopy() *GpuConfig {
	if c == nil {
		return nil
	}
	return &GpuConfig{TypeMeta: c.TypeMeta, Sharing: c.Sharing.DeepCopy()}
}

// DeepCopy gives a copy that shares nothing with the original.
func (c *MigConfig) DeepCopy() *MigConfig {
	if c == nil {
		return nil
	}
	return &MigConfig{TypeMeta: c.TypeMeta, Sharing: c.Sharing.DeepCopy()}
}

// DeepCopy gives a copy that shares nothing with the original.
func (c *ShareConfig) DeepCopy() *ShareConfig { return clone(c) }

// DeepCopy gives a copy that shares nothing with the original.
func (s *Sharing) DeepCopy() *Sharing {
	if s == nil {
		return nil
	}
	return &Sharing{Strategy: s.Strategy, TimeSlicing: clone(s.TimeSlicing), MPS: s.MPS.DeepCopy()}
}

// DeepCopy gives a copy that shares nothing with the original.
func (m *MPS) DeepCopy() *MPS {
	if m == nil {
		return nil
	}
	out := &MPS{ThreadPercentage: clone(m.ThreadPercentage), PerDevice: slices.Clone(m.PerDevice), MultiUser: m.MultiUser}
	if m.MemoryLimit != nil {
		limit := m.MemoryLimit.DeepCopy()
		out.MemoryLimit = &limit
	}
	for i := range out.PerDevice {
		out.PerDevice[i].MemoryLimit = out.PerDevice[i].MemoryLimit.DeepCopy()
	}
	return out
}

// clone copies what holds no pointers.
func clone[T any](from *T) *T {
	if from == nil {
		return nil
	}
	to := *from
	return &to
}
