package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	faultsPage   = "../docs/agent-compatibility.md"
	versionsPage = "../docs/versions.md"
)

var (
	testName = regexp.MustCompile("`([a-z]+)\\.(Test[A-Za-z0-9]+)`")
	ruleName = regexp.MustCompile("`conformance/([^`]+)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)
	row      = regexp.MustCompile(`(?m)^\| ([BS])(\d+) \|.*$`)
)

// TestFaultsPage shows that the page of faults has a row for each, and that every test that it names exists.
func TestFaultsPage(t *testing.T) {
	page, err := os.ReadFile(faultsPage)
	if err != nil {
		t.Fatal(err)
	}
	tests, rules := allTests(t)
	checkTests(t, tests, faultsPage, string(page))
	for _, name := range ruleName.FindAllStringSubmatch(string(page), -1) {
		section, last := name[1][:strings.LastIndexByte(name[1], '/')], name[1][strings.LastIndexByte(name[1], '/')+1:]
		// Tables put the name together of the section and the last word.
		if !strings.Contains(rules, `"`+name[1]+`"`) && (!strings.Contains(rules, `"`+section+"/") || !strings.Contains(rules, `("`+last+`"`)) {
			t.Errorf("%s names the rule %s, which does not exist", faultsPage, name[1])
		}
	}
	seen := map[string]bool{}
	for _, line := range row.FindAllStringSubmatch(string(page), -1) {
		seen[line[1]+line[2]] = true
		if !testName.MatchString(line[0]) && !strings.Contains(line[0], "does not apply") {
			t.Errorf("%s%s has neither a test nor a reason", line[1], line[2])
		}
	}
	for letter, last := range map[string]int{"B": 22, "S": 12} {
		for i := 1; i <= last; i++ {
			if name := letter + strconv.Itoa(i); !seen[name] {
				t.Errorf("%s has no row for %s", faultsPage, name)
			}
		}
	}
}

// TestVersionsPage shows that every test that the page of versions names exists.
func TestVersionsPage(t *testing.T) {
	page, err := os.ReadFile(versionsPage)
	if err != nil {
		t.Fatal(err)
	}
	tests, _ := allTests(t)
	checkTests(t, tests, versionsPage, string(page))
}

func checkTests(t *testing.T, tests map[string]bool, name, page string) {
	t.Helper()
	found := testName.FindAllStringSubmatch(page, -1)
	if len(found) == 0 {
		t.Errorf("%s names no test", name)
	}
	for _, test := range found {
		if !tests[test[1]+"."+test[2]] {
			t.Errorf("%s names %s.%s, which does not exist", name, test[1], test[2])
		}
	}
}

// allTests are the tests of the repository as "package.TestName", by the folder's name, and the text of the conformance suite.
func allTests(t *testing.T) (map[string]bool, string) {
	tests := map[string]bool{}
	var rules strings.Builder
	for _, top := range []string{".", "../plans", "../hub", "../packaging", "../e2e", "../installer"} {
		err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			folder := filepath.Base(filepath.Dir(path))
			for _, name := range testFunc.FindAllSubmatch(raw, -1) {
				tests[folder+"."+string(name[1])] = true
			}
			if folder == "conformance" {
				rules.Write(raw)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return tests, rules.String()
}
