package apiproxy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestDownstream(t *testing.T) {
	for name, test := range map[string]struct {
		groups   []string
		imported bool
		want     []string
	}{
		"an administrator where the hub made the cluster": {[]string{"system:masters", "ops"}, false, []string{"system:masters", "ops"}},
		"an administrator where it was imported":          {[]string{"ops", "system:masters", "system:authenticated"}, true, []string{"ops", "system:authenticated"}},
		"a user where it was imported":                    {[]string{"ops"}, true, []string{"ops"}},
	} {
		got := downstream(&user.DefaultInfo{Name: "jane", Groups: test.groups}, test.imported)
		if diff := cmp.Diff(test.want, got.GetGroups()); diff != "" || got.GetName() != "jane" {
			t.Errorf("%s: %s: %s", name, got.GetName(), diff)
		}
	}
}
