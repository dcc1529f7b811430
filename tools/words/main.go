// Command words refuses words of a private dialect in names, comments, messages and documentation. The words are in words.txt beside it,
// each with what to say instead.
//
//	git ls-files -z | words words.txt
//
// It reads names of files from standard input, separated by zero bytes, prints a line for each hit, and exits with 1 if there are any.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// skipped are files that nobody writes by hand, that quote others, or that list the words.
var skipped = regexp.MustCompile(
	`(^|/)(testdata/|LICENSE$|go[-.0-9a-z]*\.(mod|sum)$|zz_generated|crds/.*\.yaml$)|^tools/words/|\.(png|svg|gz|xz)$`)

// rule is one line of the list.
type rule struct {
	names, texts bool           // where it holds
	name, text   *regexp.Regexp // the pattern, for a name that is split into words and for text
	say          string         // what to say instead
}

// list is the list of words.
type list struct {
	rules []rule
	// allowed are lines that are not checked.
	allowed []*regexp.Regexp
}

// hit is one word that was found.
type hit struct {
	line       int // from 1; 0 for the name of the file
	found, say string
}

func main() {
	found, err := run(os.Args[1:], os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(2)
	}
	if found > 0 {
		fmt.Fprintf(os.Stderr, "words: %d hits; the list is tools/words/words.txt\n", found)
		os.Exit(1)
	}
}

// run checks the files that in names by the list args[0], prints what it finds to out, and returns the number of hits.
func run(args []string, in io.Reader, out io.Writer) (int, error) {
	if len(args) != 1 {
		return 0, errors.New("usage: git ls-files -z | words LIST")
	}
	raw, err := os.ReadFile(args[0])
	if err != nil {
		return 0, err
	}
	words, err := parse(string(raw))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", args[0], err)
	}
	files, err := io.ReadAll(in)
	if err != nil {
		return 0, err
	}
	count := 0
	w := bufio.NewWriter(out)
	for file := range strings.SplitSeq(strings.Trim(string(files), "\x00"), "\x00") {
		if skipped.MatchString(file) {
			continue
		}
		content, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, but not yet from the index
		}
		if err != nil {
			return 0, err
		}
		for _, h := range words.check(file, content) {
			count++
			if h.line == 0 {
				fmt.Fprintf(w, "%s: name of the file: %q: say %q\n", file, h.found, h.say)
				continue
			}
			fmt.Fprintf(w, "%s:%d: %q: say %q\n", file, h.line, h.found, h.say)
		}
	}
	return count, w.Flush()
}

// parse reads the list.
func parse(raw string) (list, error) {
	var l list
	for n, line := range strings.Split(raw, "\n") {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 3 || !slices.Contains([]string{"name", "text", "any", "allow"}, fields[0]) {
			return list{}, fmt.Errorf("line %d: must be name, text, any or allow, a pattern, and what to say, separated by tabs", n+1)
		}
		if fields[0] == "allow" {
			allowed, err := regexp.Compile(fields[1])
			if err != nil {
				return list{}, fmt.Errorf("line %d: %w", n+1, err)
			}
			l.allowed = append(l.allowed, allowed)
			continue
		}
		r := rule{names: fields[0] != "text", texts: fields[0] != "name", say: fields[2]}
		var err error
		if r.name, err = regexp.Compile(`\b(?:` + fields[1] + `)\b`); err != nil {
			return list{}, fmt.Errorf("line %d: %w", n+1, err)
		}
		if r.text, err = regexp.Compile(`(?i)\b(?:` + strings.ReplaceAll(fields[1], " ", `\s+`) + `)\b`); err != nil {
			return list{}, fmt.Errorf("line %d: %w", n+1, err)
		}
		l.rules = append(l.rules, r)
	}
	return l, nil
}

// check returns the hits in one file, in the order of lines.
func (l list) check(file string, content []byte) []hit {
	if bytes.IndexByte(content, 0) >= 0 {
		return nil // not text
	}
	var hits []hit
	for _, r := range l.rules {
		if r.names && r.name.MatchString(words(path.Base(file))) {
			hits = append(hits, hit{found: path.Base(file), say: r.say})
		}
	}
	text := content
	if strings.HasSuffix(file, ".go") {
		var names []hit
		text, names = split(l.rules, content)
		hits = append(hits, names...)
	}
	for _, r := range l.rules {
		if !r.texts {
			continue
		}
		for _, at := range r.text.FindAllIndex(text, -1) {
			found := strings.Join(strings.Fields(string(text[at[0]:at[1]])), " ")
			hits = append(hits, hit{line: 1 + bytes.Count(text[:at[0]], []byte("\n")), found: found, say: r.say})
		}
	}
	lines := bytes.Split(content, []byte("\n"))
	hits = slices.DeleteFunc(hits, func(h hit) bool { return h.line > 0 && l.allows(lines[h.line-1]) })
	slices.SortStableFunc(hits, func(a, b hit) int { return a.line - b.line })
	return hits
}

func (l list) allows(line []byte) bool {
	return slices.ContainsFunc(l.allowed, func(r *regexp.Regexp) bool { return r.Match(line) })
}

// split separates Go source: it returns its comments and string literals, with everything else replaced so that lines and offsets stay, and
// the hits among its identifiers.
func split(rules []rule, source []byte) ([]byte, []hit) {
	// Code is replaced by a character that neither is a space nor belongs to a word, so that no phrase spans it.
	text := bytes.Repeat([]byte("#"), len(source))
	for i, c := range source {
		if c == '\n' {
			text[i] = c
		}
	}
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(source))
	var s scanner.Scanner
	s.Init(file, source, func(token.Position, string) {}, scanner.ScanComments)
	var hits []hit
	for {
		pos, tok, literal := s.Scan()
		at := file.Offset(pos)
		switch tok {
		case token.EOF:
			return text, hits
		case token.COMMENT:
			copy(text[at:], "  ")
			copy(text[at+2:], literal[2:])
			if from := bytes.LastIndexByte(source[:at], '\n') + 1; len(bytes.TrimSpace(source[from:at])) == 0 {
				copy(text[from:at], bytes.Repeat([]byte(" "), at-from)) // a phrase may span two lines of a comment
			}
		case token.STRING:
			copy(text[at:], literal)
		case token.IDENT:
			split := words(literal)
			for _, r := range rules {
				if r.names && r.name.MatchString(split) {
					hits = append(hits, hit{line: file.Line(pos), found: literal, say: r.say})
				}
			}
		}
	}
}

// words splits a name into its words in small letters: "lookAnew" and "look_anew.go" are "look anew" and "look anew go".
func words(name string) string {
	var out strings.Builder
	previous := ' '
	for i, c := range name {
		next, _ := utf8.DecodeRuneInString(name[i+utf8.RuneLen(c):])
		switch {
		case !unicode.IsLetter(c):
			c = ' '
		case unicode.IsUpper(c) && (unicode.IsLower(previous) || unicode.IsLower(next)):
			out.WriteByte(' ')
		}
		out.WriteRune(unicode.ToLower(c))
		previous = c
	}
	return strings.Join(strings.Fields(out.String()), " ")
}
