package crds

import (
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestDateColumns: a column of type date shows the time since then, and <invalid> for a time that is still to come.
func TestDateColumns(t *testing.T) {
	for name, crd := range definitions(t, Options{SkipCAPI: true}) {
		for _, version := range crd.Spec.Versions {
			for _, column := range version.AdditionalPrinterColumns {
				if column.Type == "date" && strings.Contains(strings.ToLower(column.JSONPath), "expire") {
					t.Errorf("%s shows %s in the column %s of type date", name, column.JSONPath, column.Name)
				}
			}
		}
	}
}

// TestVersionColumn: "kubectl get rkecontrolplanes" shows the version, in whichever of its two fields it is.
func TestVersionColumn(t *testing.T) {
	version := definitions(t, Options{})["rkecontrolplanes.rke.cattle.io"].Spec.Versions[0]
	columns, err := tableconvertor.New(version.AdditionalPrinterColumns)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		spec map[string]any
		want any
	}{
		"version":           {map[string]any{"version": "v1.36.1+k3s1"}, "v1.36.1+k3s1"},
		"kubernetesVersion": {map[string]any{"kubernetesVersion": "v1.36.2+rke2r1"}, "v1.36.2+rke2r1"},
		"both":              {map[string]any{"version": "v1.36.1+k3s1", "kubernetesVersion": "v1.36.1+k3s1"}, "v1.36.1+k3s1"},
		"none":              {map[string]any{}, nil},
	} {
		table, err := columns.ConvertToTable(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rke.cattle.io/v1", "kind": "RKEControlPlane", "metadata": map[string]any{"name": "one"}, "spec": tt.spec,
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, column := range table.ColumnDefinitions {
			if got := table.Rows[0].Cells[i]; column.Name == "Version" && got != tt.want {
				t.Errorf("%s: the column has %v, want %v", name, got, tt.want)
			}
		}
	}
}
