//go:build conformance

package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// knownPatience is for rules that an agent is known not to keep: most of them fail because something never happens. Rules that it keeps get
// the usual time.
const knownPatience = 20 * time.Second

// expectation is what is known of a rule.
type expectation int

const (
	// keeps is what is expected where nothing is known.
	keeps expectation = iota
	lacks
	// varies is for rules that depend on which of two things comes first.
	varies
)

// parseKnown reads the names of rules that an agent is known to lack, one in a line, followed by "sometimes" where that depends. Text after
// "#" says why. Rules of the contract cannot be among them: what an agent in the field lacks is no contract.
func parseKnown(text string) (map[string]expectation, error) {
	better := map[string]bool{}
	for _, r := range rules {
		better[r.name] = r.better != ""
	}
	known := map[string]expectation{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		name, when, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" {
			continue
		}
		switch isBetter, exists := better[name]; {
		case !exists:
			return nil, fmt.Errorf("there is no rule %q", name)
		case !isBetter:
			return nil, fmt.Errorf("%s is a rule of the contract; what an agent in the field does not keep belongs to those that make it better",
				name)
		case known[name] != keeps:
			return nil, fmt.Errorf("%s is there twice", name)
		case when == "":
			known[name] = lacks
		case when == "sometimes":
			known[name] = varies
		default:
			return nil, fmt.Errorf("%q behind %s must be \"sometimes\", or nothing", when, name)
		}
	}
	return known, nil
}

func TestParseKnown(t *testing.T) {
	known, err := parseKnown("# all of it\n\n3.5/plan-state/failure-stays-to-be-seen # B1\n2/file/whole-or-not-at-all sometimes # B21\n")
	if err != nil || len(known) != 2 || known["3.5/plan-state/failure-stays-to-be-seen"] != lacks ||
		known["2/file/whole-or-not-at-all"] != varies {
		t.Errorf("%v, %v", known, err)
	}
	for text, want := range map[string]string{
		"1.1/no/such":                        "there is no rule",
		"2/json/not-json ":                   "is a rule of the contract",
		"2/json/not-json-is-reported seldom": `must be "sometimes"`,
		"2/json/not-json-is-reported\n2/json/not-json-is-reported\n": "is there twice",
	} {
		if _, err := parseKnown(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
