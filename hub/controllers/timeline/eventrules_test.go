package timeline

import (
	"os"
	"strings"
	"testing"
)

// TestEventsDocumented: the page about Events has each reason that is not that of a condition.
func TestEventsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/hub-commands.md")
	if err != nil {
		t.Fatal(err)
	}
	check := func(rules map[string]eventRule) {
		for condition, rule := range rules {
			for _, reason := range []string{rule.whenTrue, rule.otherwise, rule.prefix} {
				if reason != "" && reason != suppressed && !strings.Contains(string(page), "`"+reason+"`") {
					t.Errorf("docs/hub-commands.md lacks the reason %s of condition %s", reason, condition)
				}
			}
		}
	}
	for _, rules := range eventRules {
		check(rules)
	}
	check(operationRules)
}
