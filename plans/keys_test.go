package plans

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestKeysSayWhoWritesThem compares the comments of the keys with AgentKeys.
func TestKeysSayWhoWritesThem(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "plan.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	documented := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Key") {
			return true
		}
		documented++
		name := spec.Names[0].Name
		key, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		byAgent := strings.HasPrefix(spec.Doc.Text(), name+" is the agent's: ")
		if byHub := strings.HasPrefix(spec.Doc.Text(), name+" is the hub's: "); byAgent == byHub || byAgent != slices.Contains(agentKeys, key) {
			t.Errorf("the comment of %s does not say who writes it: %s", name, spec.Doc.Text())
		}
		return true
	})
	if documented < len(agentKeys) {
		t.Errorf("found %d keys", documented)
	}
}
