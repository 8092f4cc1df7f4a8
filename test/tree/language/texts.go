// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Kind says how a text is written and therefore which phrases it is checked for.
type Kind string

// The kinds of text.
const (
	Comment    Kind = "comment"
	Document   Kind = "document"
	Message    Kind = "message"    // a string literal: a log message, an error, a help text
	Identifier Kind = "identifier" // a declared name, split into lower-case words
	FileName   Kind = "file name"
	// Sentence is the first sentence of a doc comment. It is also part of a Comment.
	Sentence Kind = "first sentence"
)

// Text is one comment, paragraph, message or name of a file. Its lines are the
// lines of the file, starting at Line, without comment markers.
type Text struct {
	Kind Kind
	Line int
	Text string
}

// Unit is the set of files that is counted and excused together: one folder
// without its subfolders, or one document.
func Unit(file string) string {
	if path.Ext(file) == ".md" {
		return file
	}
	return path.Dir(file)
}

// Files lists the files under top whose texts are checked, sorted. Test data,
// generated files and rendered manifests are left out: their sources are checked.
// This package is left out because it quotes the phrases.
func Files(top string) ([]string, error) {
	var files []string
	err := fs.WalkDir(os.DirFS(top), ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			hidden := strings.HasPrefix(name, ".") && file != "." && name != ".github"
			if hidden || name == "testdata" || file == "test/tree/language" || file == "deployments/static" {
				return fs.SkipDir
			}
			return nil
		}
		if entry.Type().IsRegular() && !strings.HasPrefix(name, "zz_") && reader(file) != nil {
			files = append(files, file)
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}

// Read returns the texts of one file under top.
func Read(top, file string) ([]Text, error) {
	content, err := os.ReadFile(filepath.Join(top, file))
	if err != nil {
		return nil, err
	}
	texts, err := reader(file)(file, string(content))
	base := strings.TrimSuffix(path.Base(file), path.Ext(file))
	return append(texts, Text{Kind: FileName, Line: 1, Text: splitWords(base)}), err
}

// reader returns the function that reads a file of this name. It returns nil if the
// file has no texts to check.
func reader(file string) func(file, content string) ([]Text, error) {
	base := path.Base(file)
	if strings.Contains(file, "templates/") && base != "NOTES.txt" {
		return readTemplate
	}
	switch path.Ext(file) {
	case ".go":
		return readGo
	case ".md":
		return readMarkdown
	case ".yaml", ".yml", ".tpl", ".sh", ".toml":
		return readHash
	case ".c", ".proto":
		return readSlashes
	}
	switch {
	case base == "NOTES.txt":
		return readPlain
	case base == "values.schema.json":
		return readDescriptions
	case base == "Makefile", base == ".gitignore", base == ".editorconfig":
		return readHash
	case strings.Contains(file, "walkthrough/bin/"):
		return readHash
	}
	return nil
}

// readGo returns the comments, the declared names and the messages of a Go file. A
// message is a string literal of more than two words. Of a file without tests it
// also returns the first sentence of each doc comment.
func readGo(file, content string) ([]Text, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var texts []Text
	for _, group := range parsed.Comments {
		var lines []string
		for _, comment := range group.List {
			for line := range strings.SplitSeq(comment.Text, "\n") {
				lines = append(lines, strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(line, "*/"), "/*"), "//"))
			}
		}
		texts = append(texts, Text{Comment, files.Position(group.Pos()).Line, strings.Join(lines, "\n")})
	}
	checked := !strings.HasSuffix(file, "_test.go") && !ast.IsGenerated(parsed)
	document := func(doc *ast.CommentGroup) {
		if sentence := firstSentence(doc.Text()); checked && sentence != "" {
			texts = append(texts, Text{Sentence, files.Position(doc.Pos()).Line, sentence})
		}
	}
	document(parsed.Doc)
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.GenDecl:
			document(node.Doc)
		case *ast.BasicLit:
			if value, err := strconv.Unquote(node.Value); node.Kind == token.STRING && err == nil && len(strings.Fields(value)) > 2 {
				texts = append(texts, Text{Message, files.Position(node.Pos()).Line, value})
			}
		case *ast.FuncDecl:
			document(node.Doc)
			texts = append(texts, name(files, node.Name))
		case *ast.TypeSpec:
			document(node.Doc)
			texts = append(texts, name(files, node.Name))
		case *ast.ValueSpec:
			document(node.Doc)
			for _, ident := range node.Names {
				texts = append(texts, name(files, ident))
			}
		case *ast.Field:
			document(node.Doc)
			for _, ident := range node.Names {
				texts = append(texts, name(files, ident))
			}
		case *ast.AssignStmt:
			for _, left := range node.Lhs {
				if ident, ok := left.(*ast.Ident); ok && node.Tok == token.DEFINE {
					texts = append(texts, name(files, ident))
				}
			}
		}
		return true
	})
	return texts, nil
}

// firstSentence returns a text up to the first full stop or colon before a space, on
// one line.
func firstSentence(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		if strings.HasSuffix(word, ".") || strings.HasSuffix(word, ":") {
			return strings.Join(words[:i+1], " ")
		}
	}
	return strings.Join(words, " ")
}

func name(files *token.FileSet, ident *ast.Ident) Text {
	return Text{Identifier, files.Position(ident.Pos()).Line, splitWords(ident.Name)}
}

// splitWords returns the words of a name in lower case, with spaces between them.
// The name is in mixed caps, snake or kebab case.
func splitWords(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case r == '_' || r == '-' || r == '.':
			b.WriteRune(' ')
			continue
		case i > 0 && unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			b.WriteRune(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

var (
	codeSpan    = regexp.MustCompile("`[^`\n]*`")
	htmlComment = regexp.MustCompile(`^ *<!-- `)
)

// readMarkdown returns the paragraphs of a document, and the comments of its
// fenced blocks. Code in backticks is left out, and blocks of output are.
func readMarkdown(file, content string) ([]Text, error) {
	var texts []Text
	var paragraph, fence []string
	start, language, inFence := 0, "", false
	end := func(line int) {
		if len(paragraph) > 0 {
			texts = append(texts, Text{Document, start, strings.Join(paragraph, "\n")})
		}
		paragraph, start = nil, line+1
	}
	lines := strings.Split(content, "\n")
	for i, line := range lines {
		number := i + 1
		if marker, ok := strings.CutPrefix(strings.TrimSpace(line), "```"); ok {
			end(number)
			if inFence && language != "text" {
				comments, err := readHash(file, strings.Join(fence, "\n"))
				if err != nil {
					return nil, err
				}
				for _, c := range comments {
					c.Line += number - 1 - len(fence)
					texts = append(texts, c)
				}
			}
			inFence, language, fence = !inFence, marker, nil
			continue
		}
		switch {
		case inFence:
			fence = append(fence, line)
		case strings.TrimSpace(line) == "" || htmlComment.MatchString(line):
			end(number)
		case strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#"):
			end(number - 1)
			paragraph = []string{codeSpan.ReplaceAllString(line, "`code`")}
			end(number)
		default:
			if len(paragraph) == 0 {
				start = number
			}
			paragraph = append(paragraph, codeSpan.ReplaceAllString(line, "`code`"))
		}
	}
	end(len(lines))
	return texts, nil
}

var (
	hashComment     = regexp.MustCompile(`^\s*(?:[^"'#]*\s)?##?(?:\s(.*))?$`)
	templateComment = regexp.MustCompile(`(?s)\{\{-?\s*/\*(.*?)\*/\s*-?\}\}`)
)

// readHash returns the comments of YAML, shell, Make and Helm templates.
func readHash(_, content string) ([]Text, error) {
	var texts []Text
	for _, found := range templateComment.FindAllStringSubmatchIndex(content, -1) {
		line := 1 + strings.Count(content[:found[2]], "\n")
		texts = append(texts, Text{Comment, line, content[found[2]:found[3]]})
	}
	var group []string
	first := 0
	end := func() {
		if len(group) > 0 {
			texts = append(texts, Text{Comment, first, strings.Join(group, "\n")})
		}
		group = nil
	}
	for i, line := range strings.Split(content, "\n") {
		found := hashComment.FindStringSubmatch(line)
		if found == nil || strings.HasPrefix(line, "#!") {
			end()
			continue
		}
		if group == nil {
			first = i + 1
		}
		group = append(group, found[1])
	}
	end()
	return texts, nil
}

var quoted = regexp.MustCompile(`'[^']* [^']*'|\bmessage: |\bfail `)

// readTemplate returns the comments of a template of the chart, and the lines with
// messages. The messages come from its policies and failures. Such a line is a text as
// a whole, because CEL puts a message together from strings.
func readTemplate(file, content string) ([]Text, error) {
	texts, err := readHash(file, content)
	for i, line := range strings.Split(content, "\n") {
		if quoted.MatchString(line) && !hashComment.MatchString(line) {
			texts = append(texts, Text{Message, i + 1, line})
		}
	}
	return texts, err
}

// readSlashes returns the comments of C and protocol buffers.
func readSlashes(file, content string) ([]Text, error) {
	var s scanner.Scanner
	files := token.NewFileSet()
	// The scanner of Go reads the comments of C; errors in the rest do not matter.
	s.Init(files.AddFile(file, -1, len(content)), []byte(content), func(token.Position, string) {}, scanner.ScanComments)
	var texts []Text
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return texts, nil
		}
		if tok == token.COMMENT {
			literal = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(literal, "//"), "/*"), "*/")
			texts = append(texts, Text{Comment, files.Position(pos).Line, literal})
		}
	}
}

func readPlain(_, content string) ([]Text, error) {
	return []Text{{Document, 1, content}}, nil
}

var description = regexp.MustCompile(`"(?:description|title)": *("(?:[^"\\]|\\.)*")`)

// readDescriptions returns the descriptions of a JSON schema.
func readDescriptions(_, content string) ([]Text, error) {
	var texts []Text
	for _, found := range description.FindAllStringSubmatchIndex(content, -1) {
		value, err := strconv.Unquote(content[found[2]:found[3]])
		if err != nil {
			return nil, err
		}
		line := 1 + bytes.Count([]byte(content[:found[2]]), []byte("\n"))
		texts = append(texts, Text{Document, line, value})
	}
	return texts, nil
}
