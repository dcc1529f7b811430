package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/pflag"
)

// output is the form of an answer.
type output struct{ form string }

func (o *output) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&o.form, "output", "o", "table", "form of the answer: table or json")
}

func (o *output) check() error {
	if o.form != "table" && o.form != "json" {
		return fmt.Errorf("--output %q is neither table nor json", o.form)
	}
	return nil
}

// print writes an answer as JSON, or as table writes it.
func (o *output) print(out io.Writer, answer any, table func(io.Writer) error) error {
	if o.form == "table" {
		return table(out)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(answer)
}
