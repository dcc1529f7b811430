package args

import (
	"strings"
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

func TestHideSecrets(t *testing.T) {
	secret := func(flag string) bool { return flag == "--token" || flag == "-t" }
	var given []string
	for _, text := range []string{"--token=abc", "--token", "def", "-t", "gh", "--name=token", "rest", "-t"} {
		given = append(given, strings.Clone(text)) // constants cannot be overwritten
	}
	want := []string{"--token=abc", "--token", "def", "-t", "gh", "--name=token", "rest", "-t"}
	if diff := cmp.Diff(want, HideSecrets(given, secret)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"--token=***", "--token", "***", "-t", "**", "--name=token", "rest", "-t"}, given); diff != "" {
		t.Error(diff)
	}
}
