package crds

import (
	"strings"
	"testing"
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
