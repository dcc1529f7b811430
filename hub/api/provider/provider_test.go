package provider

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		names []string
		want  Set
		error string
	}{
		{names: []string{"infrastructure", "bootstrap", "infrastructure"}, want: Set{Bootstrap, Infrastructure}},
		{names: []string{"bootstrap", "control-plane", "infrastructure"}, want: All()},
		{names: []string{"bootstrap", "controlplane"}, error: `must be a list of bootstrap, control-plane, infrastructure, got "controlplane"`},
		{names: []string{""}, error: `got ""`},
		{error: "must name at least one of bootstrap, "},
	} {
		got, err := Parse(test.names)
		if test.error != "" {
			if err == nil || !strings.Contains(err.Error(), test.error) {
				t.Errorf("%v is answered with %v, want %q", test.names, err, test.error)
			}
			continue
		}
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%v is answered with %v, -want +got:\n%s", test.names, err, diff)
		}
	}
}

func TestSet(t *testing.T) {
	for _, all := range []Set{nil, {}, All()} {
		if !all.Complete() || !all.Has(ControlPlane) || len(all.Names()) != 3 {
			t.Errorf("%v is not all providers", all)
		}
	}
	one := Set{Infrastructure}
	if one.Complete() || one.Has(Bootstrap) || !one.Has(Infrastructure) {
		t.Errorf("%v is not one provider", one)
	}
}
