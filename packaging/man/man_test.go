package man

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// TestPrepare: a page has the text of the help, also where that looks like Markdown.
func TestPrepare(t *testing.T) {
	const text = "the labels a/* and CATTLE_ROLE_* of <node>, _or_ __none__"
	cmd := &cobra.Command{Use: "join <file>", Short: "Short: " + text, Long: "Long: " + text, Run: func(*cobra.Command, []string) {}}
	cmd.Flags().String("flag", "", "Usage: "+text)
	Prepare(cmd)
	var page strings.Builder
	if err := doc.GenMan(cmd, &doc.GenManHeader{}, &page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"join <file>", "Short: " + text, "Long: " + text, "Usage: " + text} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in\n%s", want, page.String())
		}
	}
}
