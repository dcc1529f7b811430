package hosts

import (
	"net/netip"
	"strings"
	"testing"
)

func TestDropRules(t *testing.T) {
	for name, test := range map[string]struct {
		inside []netip.Addr
		accept string
	}{
		"alone": {nil, ""},
		"with others": {[]netip.Addr{netip.MustParseAddr("10.88.0.12"), netip.MustParseAddr("10.88.0.11")},
			"ip saddr { 10.88.0.11, 10.88.0.12 } accept"},
	} {
		rules := dropRules(test.inside)
		if strings.Count(rules, "ip saddr") != strings.Count(test.accept, "ip saddr") || !strings.Contains(rules, test.accept) {
			t.Errorf("%s: %s", name, rules)
		}
		if strings.Index(rules, "\tdrop\n") < strings.Index(rules, "established") ||
			strings.Index(rules, "\tdrop\n") < strings.Index(rules, "saddr") {
			t.Errorf("%s: what is to be accepted is dropped before: %s", name, rules)
		}
	}
}
