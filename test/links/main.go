// SPDX-License-Identifier: Apache-2.0

// Command links fails if a link of the documents to another site is dead. Tests of
// test/docs check the links within the repository.
//
// A site that refuses programs (403, 429) or fails itself (5xx) proves nothing about
// the link, so it is only printed.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/markdown"
)

func main() {
	root := flag.String("root", ".", "the folder of the repository")
	list := flag.Bool("list", false, "print the links and check none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	checker := checker{client: &http.Client{Timeout: 30 * time.Second}, pause: 10 * time.Second, atATime: 4}
	if err := run(ctx, os.Stdout, *root, *list, checker); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // stop only ends the handling of signals
	}
}

// run checks the links of all documents below root.
func run(ctx context.Context, out io.Writer, root string, list bool, checker checker) error {
	links, err := external(root)
	if err != nil {
		return err
	}
	urls := slices.Sorted(maps.Keys(links))
	var text strings.Builder
	if list {
		for _, url := range urls {
			fmt.Fprintf(&text, "%s\t%s\n", url, strings.Join(links[url], " "))
		}
		_, err := io.WriteString(out, text.String())
		return err
	}
	results := checker.checkAll(ctx, urls)
	var dead []error
	for i, url := range urls {
		switch result := results[i]; {
		case result.unclear != "":
			fmt.Fprintf(&text, "unclear: %s: %s (in %s)\n", url, result.unclear, strings.Join(links[url], ", "))
		case result.err != nil:
			dead = append(dead, fmt.Errorf("dead: %s: %w (in %s)", url, result.err, strings.Join(links[url], ", ")))
		}
	}
	fmt.Fprintf(&text, "%d links to other sites, %d dead\n", len(urls), len(dead))
	_, err = io.WriteString(out, text.String())
	return errors.Join(append(dead, err)...)
}

var (
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	code   = regexp.MustCompile("`[^`\n]+`")
	link   = regexp.MustCompile(`(?:\]\(|<)(https?://[^)\s>]+)[)>]`)
	// example matches the hosts of examples, which do not exist.
	example = regexp.MustCompile(`^https?://(?:[^/]*\.)?(?:example\.(?:com|org)|localhost|127\.0\.0\.1)(?:[:/]|$)`)
)

// external returns the links to other sites without their anchors, each with the documents that have it.
func external(root string) (map[string][]string, error) {
	files, err := markdown.Files(root)
	if err != nil {
		return nil, err
	}
	links := map[string][]string{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		prose := code.ReplaceAllString(fenced.ReplaceAllString(string(text), ""), "")
		for _, found := range link.FindAllStringSubmatch(prose, -1) {
			url, _, _ := strings.Cut(found[1], "#")
			if !example.MatchString(url) && !slices.Contains(links[url], file) {
				links[url] = append(links[url], file)
			}
		}
	}
	return links, nil
}

// checker requests links.
type checker struct {
	client *http.Client
	// pause is the time before a second attempt.
	pause   time.Duration
	atATime int
}

// result of a link: an error if it is dead, and unclear if the site's answer proves nothing.
type result struct {
	err     error
	unclear string
}

// checkAll returns the result of each URL, in their order.
func (c checker) checkAll(ctx context.Context, urls []string) []result {
	results := make([]result, len(urls))
	tokens := make(chan struct{}, max(c.atATime, 1))
	var group sync.WaitGroup
	for i, url := range urls {
		group.Go(func() {
			tokens <- struct{}{}
			defer func() { <-tokens }()
			results[i] = c.check(ctx, url)
		})
	}
	group.Wait()
	return results
}

// check requests a URL, and again after a pause if that fails.
func (c checker) check(ctx context.Context, url string) result {
	last := c.request(ctx, url)
	if last.err == nil && last.unclear == "" {
		return last
	}
	select {
	case <-ctx.Done():
		return result{err: ctx.Err()}
	case <-time.After(c.pause):
	}
	return c.request(ctx, url)
}

// request requests a URL once.
func (c checker) request(ctx context.Context, url string) result {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return result{err: err}
	}
	request.Header.Set("User-Agent", "gpu-dra-driver-links/1 (link check of documents)")
	response, err := c.client.Do(request)
	if err != nil {
		return result{err: err}
	}
	if err := cmp.Or(response.Body.Close(), ctx.Err()); err != nil {
		return result{err: err}
	}
	switch code := response.StatusCode; {
	case code < 400:
		return result{}
	case code == http.StatusForbidden, code == http.StatusUnauthorized, code == http.StatusTooManyRequests, code >= 500:
		return result{unclear: response.Status}
	default:
		return result{err: errors.New(response.Status)}
	}
}
