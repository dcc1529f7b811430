package v1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

func TestSafeConcat(t *testing.T) {
	digest := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return hex.EncodeToString(sum[:])
	}
	long := strings.Repeat("a", 70)
	dash := strings.Repeat("b", 56) + "-" + strings.Repeat("c", 20)
	upper := strings.Repeat("d", 56) + "X" + strings.Repeat("e", 20)
	for _, tt := range []struct {
		name  string
		parts []string
		want  string
	}{
		{name: "short", parts: []string{"custom-0123456789ab", "machine", "plan"}, want: "custom-0123456789ab-machine-plan"},
		{name: "one part", parts: []string{"one"}, want: "one"},
		{name: "63 characters stay", parts: []string{strings.Repeat("a", 60), "bc"}, want: strings.Repeat("a", 60) + "-bc"},
		{name: "64 characters are cut", parts: []string{strings.Repeat("a", 60), "bcd"},
			want: strings.Repeat("a", 57) + "-" + digest(strings.Repeat("a", 60) + "-bcd")[:5]},
		{name: "long", parts: []string{long}, want: strings.Repeat("a", 57) + "-" + digest(long)[:5]},
		{name: "no two separators meet", parts: []string{dash}, want: strings.Repeat("b", 56) + "-" + digest(dash)[:6]},
		{name: "upper case is no letter here", parts: []string{upper}, want: strings.Repeat("d", 56) + "-" + digest(upper)[:6]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := SafeConcat(tt.parts...)
			if got != tt.want {
				t.Errorf("SafeConcat(%q) = %q, want %q", tt.parts, got, tt.want)
			}
			if len(got) > 63 {
				t.Errorf("SafeConcat(%q) has %d characters", tt.parts, len(got))
			}
		})
	}
}

func TestMachineNames(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)[:63]
	if got := MachineRequestName(id); len(got) != len("custom-")+12 || !strings.HasPrefix(got, "custom-") {
		t.Errorf("MachineRequestName = %q", got)
	}
	if got := MachineIDLabelValue(id); len(got) != 63 || got == id {
		t.Errorf("MachineIDLabelValue = %q", got)
	}
}
