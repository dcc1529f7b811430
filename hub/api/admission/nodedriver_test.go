package admission

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/drover-dev/drover/hub/api/fieldsupport"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

// Each field of a NodeDriver that has no effect is warned of, and no other one.
func TestNodeDriverWarnings(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "management.cattle.io", Version: "v3", Kind: "NodeDriver"}
	warning := func(spec string) string {
		return evaluate(t, "drover-nodedriver-warnings", &user.DefaultInfo{Name: "writer"}, kind, "nodedrivers", "", "", "{spec: "+spec+"}")
	}
	all := managementv3.NodeDriverSpec{
		Active: true, URL: "https://example.com/d", Checksum: "0", DisplayName: "Lab", Description: "d", UIURL: "u", ExternalID: "e",
		WhitelistDomains: []string{"example.com"}, AddCloudCredential: true,
	}
	got := warning("{active: true, url: 'https://example.com/d', checksum: '0', displayName: Lab, description: d, uiUrl: u, externalId: e, " +
		"whitelistDomains: [example.com], addCloudCredential: true}")
	want, why, _ := strings.Cut(fieldsupport.Warnings(&all)[0], " have no effect: ")
	fields, _, _ := strings.Cut(got, ": no effect")
	if !sameWords(fields, want) || !strings.HasPrefix(why, "only Rancher's") {
		t.Errorf("got %q, want %q", fields, want)
	}
	for spec, want := range map[string]string{
		"null": "", "{active: true, builtin: true, url: 'local://'}": "",
		"{description: '', uiUrl: '', whitelistDomains: [], addCloudCredential: false}": "",
		"{uiUrl: u}": "spec.uiUrl: no effect",
		"{builtin: true, url: 'https://example.com/d'}": "spec.builtin: no effect",
	} {
		if got := warning(spec); want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}

func sameWords(a, b string) bool {
	words := map[string]int{}
	for _, w := range strings.Split(a, ", ") {
		words[w]++
	}
	for _, w := range strings.Split(b, ", ") {
		words[w]--
	}
	for _, n := range words {
		if n != 0 {
			return false
		}
	}
	return true
}
