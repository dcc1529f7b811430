package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// format is the value of --output; it implements pflag.Value.
type format string

const (
	formatText format = "text"
	formatJSON format = "json"
	formatYAML format = "yaml"
)

func (f *format) flags(cmd *cobra.Command) {
	*f = formatText
	cmd.Flags().VarP(f, "output", "o", "output format: text, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

// String returns the name of the format.
func (f *format) String() string { return string(*f) }

// Type is the name of the value in the help.
func (f *format) Type() string { return "format" }

// Set accepts the name of a format.
func (f *format) Set(text string) error {
	switch format(text) {
	case formatText, formatJSON, formatYAML:
		*f = format(text)
		return nil
	}
	return fmt.Errorf("unknown format %q: use text, json or yaml", text)
}

// print writes value as JSON or YAML, or calls text.
func (f *format) print(w io.Writer, value any, text func(io.Writer)) error {
	switch *f {
	case formatJSON:
		return writeJSON(w, value)
	case formatYAML:
		raw, err := yaml.Marshal(value)
		if err == nil {
			_, err = w.Write(raw)
		}
		return err
	}
	// One write, so that a pipe that is closed early is one error.
	var b strings.Builder
	text(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeJSON writes indented JSON.
func writeJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}
