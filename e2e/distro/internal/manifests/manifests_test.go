package manifests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplit(t *testing.T) {
	objects, err := Split([]byte(`# only a comment
---
kind: Namespace
apiVersion: v1
metadata: {name: a}
---

---
{"kind": "List", "apiVersion": "v1", "items": [{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "b"}}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		got = append(got, o.GetKind()+"/"+o.GetName())
	}
	if diff := cmp.Diff([]string{"Namespace/a", "ConfigMap/b"}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := Split([]byte("a: [")); err == nil {
		t.Error("a file that is no YAML was taken")
	}
	if got := addonName("/x/My_Add.ons.yaml"); got != "my-add-ons" {
		t.Errorf("got %s", got)
	}
}
