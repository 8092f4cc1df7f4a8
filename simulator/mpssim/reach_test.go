// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAServerNeedsAPipeDirectoryThatItsUserCanReach(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("to serve other users takes root")
	}
	for name, tc := range map[string]struct {
		mode      os.FileMode
		owner     int
		multiUser bool
		uid       int
		refuse    bool
	}{
		"a folder with mode 0711":                      {mode: 0o711, uid: 1000},
		"root's own folder":                            {mode: 0o700, uid: 1000, refuse: true},
		"root's own folder, for root":                  {mode: 0o700, uid: 0},
		"root's own folder, with one server of root's": {mode: 0o700, uid: 1000, multiUser: true},
		"the user's own folder":                        {mode: 0o700, owner: 1000, uid: 1000},
		"a folder that only others can pass":           {mode: 0o011, owner: 1000, uid: 1000, refuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "t4", "0")
			w.options.MultiUser = tc.multiUser
			above := filepath.Dir(w.options.PipeDirectory)
			must(t, os.Chown(above, tc.owner, 0))
			must(t, os.Chmod(above, tc.mode))
			w.start()
			got := w.connect(user{pid: 1, uid: tc.uid}, "", "").read()
			if !tc.refuse {
				if got.Error != nil || got.Server == 0 {
					t.Errorf("got %+v, want a server", got)
				}
				return
			}
			if errorOf(got) != errConnectionFailed || got.Error.Code != 805 || !strings.Contains(got.Error.Message, above+" has mode") {
				t.Errorf("got %+v, want a connection that failed, and the folder's mode", got.Error)
			}
			if got := w.command("get_server_list"); got != "" {
				t.Errorf("there is a server: %s", got)
			}
			// Other users still get a server.
			if got := w.connect(me(), "", "").read(); got.Server == 0 {
				t.Errorf("root gets %+v, want a server", got)
			}
		})
	}
}

func TestLinksToAPipeDirectoryAreResolved(t *testing.T) {
	other := os.Getuid() + 1
	open, private := shortDir(t), shortDir(t)
	must(t, os.Chmod(private, 0o700))
	link := filepath.Join(open, "pipe")
	must(t, os.Mkdir(filepath.Join(private, "pipe"), 0o755))
	must(t, os.Symlink(filepath.Join(private, "pipe"), link))
	if err := reach(other, link); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v", err)
	}
	if err := reach(other, open); err != nil {
		t.Error(err)
	}
}
