// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// repository makes a repository with a branch main, and a branch of the commits.
func repository(t *testing.T, messages ...string) string {
	t.Helper()
	folder := t.TempDir()
	git(t, folder, "init", "--quiet", "--initial-branch=main")
	git(t, folder, "commit", "--quiet", "--allow-empty", "--message", "older, without a sign-off")
	git(t, folder, "switch", "--quiet", "--create", "change")
	for _, message := range messages {
		git(t, folder, "commit", "--quiet", "--allow-empty", "--message", message)
	}
	return folder
}

func git(t *testing.T, folder string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", folder, "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Env = append(cmd.Environ(), "GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_COMMITTER_NAME=Bea",
		"GIT_COMMITTER_EMAIL=bea@example.com", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

func TestASignOffOfTheAuthorIsEnough(t *testing.T) {
	folder := repository(t,
		"same address\n\nWhy.\n\nSigned-off-by: A. Smith <Ann@example.com>",
		"same name, as Dependabot\n\nSigned-off-by: Ann <support@example.com>",
		"two\n\nReviewed-by: Cleo <cleo@example.com>\nSigned-off-by: Bea <bea@example.com>\nSigned-off-by: Ann <ann@example.com>")
	if err := run(t.Context(), folder, "main"); err != nil {
		t.Error(err)
	}
}

func TestCommitsWithoutASignOffAreListed(t *testing.T) {
	folder := repository(t,
		"good\n\nSigned-off-by: Ann <ann@example.com>",
		"none at all",
		"another person's\n\nSigned-off-by: Bea <bea@example.com>",
		"no trailer: Signed-off-by: Ann <ann@example.com> in the text\n\nmore",
		"no address\n\nSigned-off-by: Ann")
	err := run(t.Context(), folder, "main")
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 5 {
		t.Fatalf("want four commits and the way to sign them off:\n%v", err)
	}
	for i, want := range []string{`"none at all"`, `"another person's"`, `"no trailer: `, `"no address"`, "git rebase --signoff main"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d is %q, want %s in it", i, lines[i], want)
		}
	}
	if want := `"Signed-off-by: Ann <ann@example.com>"`; !strings.Contains(lines[0], want) {
		t.Errorf("%q does not show the line that is missing, %s", lines[0], want)
	}
}

func TestMergeCommitsNeedNone(t *testing.T) {
	folder := repository(t, "change\n\nSigned-off-by: Ann <ann@example.com>")
	git(t, folder, "switch", "--quiet", "main")
	git(t, folder, "commit", "--quiet", "--allow-empty", "--message", "meanwhile")
	git(t, folder, "switch", "--quiet", "change")
	git(t, folder, "merge", "--quiet", "--no-ff", "--message", "merge main", "main")
	if err := run(t.Context(), folder, "main"); err != nil {
		t.Error(err)
	}
}

func TestAnUnknownBaseIsAnError(t *testing.T) {
	for _, base := range []string{"nosuch", "--output=x"} {
		if err := run(t.Context(), repository(t), base); err == nil {
			t.Errorf("no error for the base %q", base)
		}
	}
}
