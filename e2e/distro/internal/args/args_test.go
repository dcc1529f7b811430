package args

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMerge(t *testing.T) {
	defaults := map[string]string{"b": "1", "a": "x=y"}
	for _, tc := range []struct {
		name       string
		user, want []string
	}{
		{"defaults, sorted", nil, []string{"--a=x=y", "--b=1"}},
		{"the user wins", []string{"b=2"}, []string{"--a=x=y", "--b=2"}},
		{"a key given twice stays twice", []string{"b=2", "b=3"}, []string{"--a=x=y", "--b=2", "--b=3"}},
		{"new keys, dashes, and no value", []string{"--c=4", "d"}, []string{"--a=x=y", "--b=1", "--c=4", "--d=true"}},
	} {
		if diff := cmp.Diff(tc.want, Merge(defaults, tc.user)); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}
