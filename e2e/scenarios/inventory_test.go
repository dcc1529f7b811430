//go:build e2e

package scenarios

import (
	"slices"
	"testing"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// inventory lists every object in the hub's API.
func inventory(t *testing.T) []string {
	t.Helper()
	all, err := shared.Inventory(t.Context())
	suite.Must(t, err)
	var out []string
	for name := range all {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// added are the lines of after that before does not have.
func added(before, after []string) []string {
	var out []string
	for _, line := range after {
		if !slices.Contains(before, line) {
			out = append(out, line)
		}
	}
	return out
}
