package crds

import (
	"os"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestRolesOfTeams: the ClusterRoles in docs/teams.md name resources that there are.
func TestRolesOfTeams(t *testing.T) {
	page, err := os.ReadFile("../../../docs/teams.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	known := definitions(t, Options{})
	roles := strings.Split(text, "---\n")
	if len(roles) != 2 {
		t.Fatalf("%d roles", len(roles))
	}
	for _, document := range roles {
		role := &rbacv1.ClusterRole{}
		if err := yaml.UnmarshalStrict([]byte(document), role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				name, _, _ := strings.Cut(resource, "/")
				if rule.APIGroups[0] != "" && name != "*" && known[name+"."+rule.APIGroups[0]] == nil {
					t.Errorf("%s: there are no %s in the group %s", role.Name, name, rule.APIGroups[0])
				}
			}
		}
	}
}
