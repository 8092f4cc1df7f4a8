// SPDX-License-Identifier: Apache-2.0

// Command dco fails if a commit lacks the sign-off of its author. The Developer
// Certificate of Origin requires it: DCO in the root of the repository.
//
//	go run ./test/dco -base main
//
// It checks the commits of HEAD that are not in the base. Merge commits need no sign-off.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
)

func main() {
	base := flag.String("base", "main", "the commit or branch that the commits are for")
	repository := flag.String("repository", ".", "the folder of the repository")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *repository, *base); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // stop only ends the handling of signals
	}
}

// commit is a commit with its sign-offs, each as "Name <address>".
type commit struct {
	hash, author, email, subject string
	signOffs                     []string
}

// run returns an error that lists the commits without a sign-off.
func run(ctx context.Context, repository, base string) error {
	commits, err := list(ctx, repository, base)
	if err != nil {
		return err
	}
	var problems []error
	for _, c := range commits {
		if !c.signed() {
			problems = append(problems, fmt.Errorf("commit %.12s %q has no line \"Signed-off-by: %s <%s>\" of its author", c.hash, c.subject, c.author, c.email))
		}
	}
	if len(problems) > 0 {
		problems = append(problems, fmt.Errorf("to sign your commits off: git rebase --signoff %s (CONTRIBUTING.md says what that certifies)", base))
		return errors.Join(problems...)
	}
	fmt.Printf("%d commits since %s are signed off\n", len(commits), base)
	return nil
}

// list returns the commits of HEAD that are not in the base, without merge commits.
func list(ctx context.Context, repository, base string) ([]commit, error) {
	const format = "%H%x00%an%x00%ae%x00%s%x00%(trailers:key=Signed-off-by,valueonly,separator=%x01)%x02"
	// The base is behind --end-of-options, so that git does not read a name with a hyphen as an option.
	cmd := exec.CommandContext(ctx, "git", "-C", repository, "log", "--no-merges", "--reverse", "--format="+format,
		"--end-of-options", base+"..HEAD")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the commits since %s: %w", base, err)
	}
	var commits []commit
	for record := range strings.SplitSeq(string(out), "\x02") {
		fields := strings.Split(strings.TrimPrefix(record, "\n"), "\x00")
		if len(fields) < 5 {
			continue
		}
		c := commit{hash: fields[0], author: fields[1], email: fields[2], subject: fields[3]}
		if fields[4] != "" {
			c.signOffs = strings.Split(fields[4], "\x01")
		}
		commits = append(commits, c)
	}
	return commits, nil
}

// signed reports whether a sign-off has the author's name or address. Programs that
// commit, such as Dependabot, sign off with another address.
func (c commit) signed() bool {
	for _, signOff := range c.signOffs {
		name, address, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(signOff), ">"), " <")
		if address != "" && (strings.EqualFold(address, c.email) || name == c.author) {
			return true
		}
	}
	return false
}
