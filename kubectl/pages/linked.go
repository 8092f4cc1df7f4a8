// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
)

// commandPages are the pages that show what a command prints.
func commandPages() map[string]string {
	return map[string]string{"get": "", "who": "claims", "usage": "namespaces", "doctor": "findings"}
}

// linked returns a sentence with links: objects of the cluster that it names, and commands
// for which there is a page. Objects without a namespace are of the given one.
func (r *reading) linked(namespace, text string) markup.Parts {
	var parts markup.Parts
	words := strings.Split(text, " ")
	for i := 0; i < len(words); i++ {
		if i > 0 {
			parts = append(parts, markup.Text(" "))
		}
		if to, n := commandLink(words[i:]); n > 0 {
			parts = append(parts, to)
			i += n - 1
			continue
		}
		word := strings.TrimRight(words[i], ".,:;)")
		if to := r.objectLink(namespace, words[:i], word, words[i+1:]); to != nil {
			parts = append(parts, to, markup.Text(words[i][len(word):]))
			continue
		}
		parts = append(parts, markup.Text(words[i]))
	}
	return parts
}

// commandLink returns a link for the command at the start of the words. It also returns the
// number of the command's words; 0 if there is no page for it.
func commandLink(words []string) (markup.Part, int) {
	if len(words) < 3 || strings.TrimLeft(words[0], "(") != "kubectl" || words[1] != "gpu" {
		return nil, 0
	}
	name := strings.TrimRight(words[2], ".,:;)")
	page, ok := commandPages()[name]
	if !ok || len(words) > 3 && strings.HasPrefix(words[3], "-") {
		return nil, 0
	}
	before := words[0][:len(words[0])-len("kubectl")]
	return markup.Parts{markup.Text(before), link("kubectl gpu "+name, page), markup.Text(words[2][len(name):])}, 3
}

// objectLink returns a link for the object that a word names, or nil. The words before and
// after name its kind.
func (r *reading) objectLink(namespace string, before []string, word string, after []string) markup.Part {
	kind := ""
	if len(before) > 0 {
		kind = strings.ToLower(before[len(before)-1])
	}
	name := word
	if ns, rest, ok := strings.Cut(word, "/"); ok {
		namespace, name = ns, rest
	}
	switch {
	case kind == "node" || kind == "pool":
		if _, ok := r.places[word]; ok {
			return link(word, "nodes", word)
		}
	case kind == "claim" && r.claims[namespace+"/"+name] != nil:
		return link(word, "claims", namespace, name)
	case kind == "pod" && slices.ContainsFunc(r.Objects.Pods, func(p *corev1.Pod) bool { return p.Namespace == namespace && p.Name == name }):
		return link(word, "pods", namespace, name)
	case len(after) > 2 && after[0] == "of" && (after[1] == "pool" || after[1] == "node"):
		node := strings.TrimRight(after[2], ".,:;)")
		if gpu := r.places[node][word]; gpu != "" {
			return link(word, "nodes", node, "gpus", gpu)
		}
	}
	return nil
}
