// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Phrase is a wording that this project does not use.
type Phrase struct {
	Name string
	// Pattern matches the phrase in a text whose words are separated by single
	// spaces. Letter case does not matter.
	Pattern *regexp.Regexp
	// Except matches the same words used in plain English, or is nil.
	Except *regexp.Regexp
	// Instead says what to write.
	Instead string
	// Kinds limits the phrase to these kinds of text. The default is all but
	// identifiers and file names.
	Kinds []Kind
}

// Finding is a phrase found in a text.
type Finding struct {
	Phrase Phrase
	Line   int
	Quote  string
}

func words(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)` + strings.ReplaceAll(pattern, " ", `\s+`))
}

// maxWords is the limit of the first sentence of a doc comment.
const maxWords = 18

var (
	names     = []Kind{Identifier, FileName}
	testNames = regexp.MustCompile(`^(test|benchmark|fuzz|example) `)
)

// Phrases lists what is not plain English in this project. Each entry must be
// rare in the comments of other projects: add one only if it is.
var Phrases = []Phrase{
	{
		Name:    "what is",
		Pattern: words(`\b(what|whatever)( there)? (is|was|are|were)\b[^.;:]{0,120}`),
		Except:  regexp.MustCompile(`\?`),
		Instead: "a noun: \"the published devices\", not \"what is published\"",
	},
	{
		Name:    "gives",
		Pattern: words(`\bgives\b`),
		Except:  words(`gives up`),
		Instead: "returns, assigns, provides",
	},
	{
		Name: "where for if",
		Pattern: words(`\b(only|also|even|except|but|and|or|not|empty|nil|false|true|zero|0|none|""|-) where (it|there|they|one|no|nothing|not|none|that|this|a|an|the|all|only|some|each|two|several|needed|possible)\b` +
			`|([.;,:(]|^) ?where (it|there|they|one|no|nothing|not|none|that|this|needed|possible|several|only) [^.?]{0,60}`),
		Except:  regexp.MustCompile(`\?`),
		Instead: "if, when",
	},
	{
		Name:    "nobody",
		Pattern: words(`\b(nobody|somebody|anybody|everybody|whoever|whichever|one's own)\b`),
		Except:  words(`nobody:|"nobody"|65534`),
		Instead: "the program, user or process by its name",
	},
	{
		Name:    "those that",
		Pattern: words(`\bthose (that|which|who|whose)\b|\b(is that|are those) (of|between|in|for|with|on)\b`),
		Instead: "the noun: \"claims that\", not \"those that\"",
	},
	{
		Name:    "is no",
		Pattern: words(`[^ ]+ (is|are|was|were) no [a-z]+`),
		Except:  words(`\b(there|there's) (is|are|was|were)|\bno (longer|more|less|different|larger|smaller|greater|older|newer|later|way|point|need)\b`),
		Instead: "\"is not an error\", \"succeeds if\"; no inverted negation",
	},
	{
		Name:    "programs as persons",
		Pattern: words(`\b(is|are|was|were|be|been) (told|asked)\b|\b(tells|wish|wishes|wished)\b|\blooks (at|whether|again|into|for)\b|\b(a|each|every|next|first|last|between) looks?\b|\basks (whether|the|it)\b|\b(an? )?asker\b`),
		Except:  words(`take a look`),
		Instead: "reads, lists, receives, queries, scans, requests",
	},
	{
		Name:    "lent",
		Pattern: words(`\b(lent|lends?|lending|borrow|borrows|borrowed|borrower|borrowing)\b`),
		Instead: "external allocation, shared",
	},
	{
		Name:    "settle",
		Pattern: words(`\b(settle|settles|settled|settling)\b|\b(brings?|brought|comes?|bringing) to rest\b|\bat rest\b`),
		Instead: "recover",
	},
	{
		Name:    "tidy",
		Pattern: words(`\b(tidy|tidies|tidied|tidying)\b|\b(lets?|letting) go\b`),
		Instead: "sweep, remove, release",
	},
	{
		Name:    "turns",
		Pattern: words(`\b(takes?|taking|took) turns\b|\btime turns?\b`),
		Instead: "time slice, slot",
	},
	{
		Name:    "pieces",
		Pattern: words(`\b(MIG|GPUs?) pieces?\b|\bpieces? of (a|the|one|its) (GPU|MIG|card)`),
		Instead: "partition, MIG device",
	},
	{
		Name:    "surroundings",
		Pattern: words(`\b(surroundings|around is|around are|beside)\b`),
		Instead: "holders, with, next to",
	},
	{
		Name:    "stands in",
		Pattern: words(`\b(stands?|stood|lies|lie|lay) (in|at|on|there|here|below|under|above|before|behind|alone|open|beside)\b`),
		Except:  words(`stand in (for|line)|stand alone|stand in$`),
		Instead: "is in",
	},
	{
		Name:    "anew",
		Pattern: words(`\banew\b`),
		Except:  regexp.MustCompile(`"begins anew"|<!--|^ *Anew is`),
		Kinds:   []Kind{Comment},
		Instead: "again; \"restarts\", \"rewrites\"",
	},
	{
		Name:    "so many",
		Pattern: words(`\b(so many|once more|where there is)\b`),
		Kinds:   []Kind{Comment},
		Instead: "the number by its name; again; if there is",
	},
	{
		Name:    "what it does",
		Pattern: words(`\bwhat (it|they|this) [a-z]+s?\b`),
		Except:  regexp.MustCompile(`\?`),
		Kinds:   []Kind{Comment},
		Instead: "the noun: \"its output\", not \"what it prints\"",
	},
	{
		Name:    "unchanged",
		Pattern: words(`\b(returns?|leaves?|left|stays?|stay|keeps?) [^.,;]{0,30}\bas (it is|it was|they are|they were)\b`),
		Kinds:   []Kind{Comment},
		Instead: "unchanged; the current ...",
	},
	{
		Name:    "long first sentence",
		Pattern: regexp.MustCompile(fmt.Sprintf(`^(\S+ ){%d}`, maxWords)),
		Kinds:   []Kind{Sentence},
		Instead: fmt.Sprintf("at most %d words and one clause; the rest in a second sentence", maxWords),
	},
	{
		Name:    "issue number",
		Pattern: words(`\b(our )?issue #?[0-9]+\b`),
		Kinds:   []Kind{Comment, Message},
		Instead: "the reason; only upstream issues are named, with their project",
	},
	{
		Name: "dialect name",
		Pattern: words(`\b(wish|wishes|glimpses?|borrow|borrowed|lent|lend|settle|settles|settled|nobody|somebody|anybody|whoever|surroundings|tidy|asker|never less|whole again|let go|lets go)\b` +
			`|^(beside|room|around|turns?|ways|sayings?)$|^(what|where) (is|was|are|it|they)\b`),
		Instead: "the word of the glossary",
		Kinds:   names,
	},
}

// Find returns the phrases in a text.
func Find(text Text) []Finding {
	var findings []Finding
	for _, p := range Phrases {
		if !p.appliesTo(text) {
			continue
		}
		for _, at := range p.Pattern.FindAllStringIndex(text.Text, -1) {
			// The exception may begin a few words before the phrase.
			context := text.Text[max(0, at[0]-12):min(len(text.Text), at[1]+12)]
			if p.Except != nil && p.Except.MatchString(context) {
				continue
			}
			findings = append(findings, Finding{
				Phrase: p,
				Line:   text.Line + strings.Count(text.Text[:at[0]], "\n"),
				Quote:  strings.Join(strings.Fields(text.Text[at[0]:at[1]]), " "),
			})
		}
	}
	return findings
}

func (p Phrase) appliesTo(text Text) bool {
	if p.Kinds != nil {
		return slices.Contains(p.Kinds, text.Kind)
	}
	if text.Kind == Identifier {
		// The name of a test is a sentence.
		return testNames.MatchString(text.Text)
	}
	return text.Kind != FileName && text.Kind != Sentence
}
