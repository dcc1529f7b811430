package limitedyaml

import (
	"strings"
	"testing"
)

// TestCheck: aliases may be used, but not to repeat much.
func TestCheck(t *testing.T) {
	const limit = 64 << 10
	long := strings.Repeat("x", 4<<10)
	for name, tt := range map[string]struct {
		text    string
		refused bool
	}{
		"nothing":           {"", false},
		"no alias":          {"a: " + strings.Repeat("x", 2*limit), false},
		"a star":            {`a: "*"`, false},
		"an unknown anchor": {"a: &a {b: c}\nd: *a\n---\ne: &e [*e2, x]\n", true},
		"an anchor":         {"a: &a {b: c}\nd: *a\ne: *a\n", false},
		"a long text":       {"a: &a " + long + "\nb: [*a, *a, *a]", false},
		"very often":        {"a: &a " + long + "\nb: [" + strings.Repeat("*a ,", 100) + "]", true},
		"of aliases":        {"a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: [" + strings.Repeat("*b ,", 200) + "]", true},
		"of itself":         {"a: &a [*a]", true},
		"in a key":          {"a: &a " + long + "\nb: {" + strings.Repeat("? *a : 1, ", 100) + "}", true},
		"several documents": {strings.Repeat("a: &a "+long+"\nb: [*a, *a, *a]\n---\n", 10), true},
		"no YAML":           {"a: [*", true},
	} {
		if err := Check([]byte(tt.text), limit); (err != nil) != tt.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		_ = Check(text, 1<<20) // it must end, and not panic
	})
}
