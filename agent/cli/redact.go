package cli

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent/doctor"
	"github.com/drover-dev/drover/plans"
)

// redactor replaces possible secrets by short marks. Equal values get equal marks within one output, so that they can be compared; the key
// ends with the process, so that a value cannot be found by trying.
type redactor struct{ key []byte }

func newRedactor() redactor {
	return redactor{key: []byte(rand.Text())}
}

func (r redactor) mark(value string) string {
	sum := hmac.New(sha256.New, r.key)
	sum.Write([]byte(value))
	return fmt.Sprintf("(hidden, %d bytes, %s)", len(value), hex.EncodeToString(sum.Sum(nil))[:8])
}

// secretSettings are the settings of a unit whose values may be secret.
var secretSettings = []string{"Environment", "SetCredential", "SetCredentialEncrypted"}

// unit returns the text of unit files with the values of secretSettings as marks, also of those that are commented out. A value that goes
// on in the next lines (systemd.syntax(7)) is replaced line by line.
func (r redactor) unit(text string) string {
	var out strings.Builder
	continued := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		trimmed := strings.TrimSpace(line)
		name, value, isSetting := strings.Cut(line, "=")
		isSecret := isSetting && slices.Contains(secretSettings, strings.Trim(name, "#; \t"))
		isComment := strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, ";")
		switch {
		case isSecret && strings.TrimSpace(value) != "":
			line = name + "=" + r.mark(value)
		case continued && !isSecret:
			line = r.mark(line)
		}
		if isSecret || continued && !isComment {
			continued = strings.HasSuffix(trimmed, "\\")
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

// visibleFields are the fields of a plan that are not redacted: contents of files and scripts, values of variables, arguments.
type visibleFields struct{ content, env, args bool }

// plan returns a copy of a plan without possible secrets. The copy cannot be applied: a mark is not base64.
func (r redactor) plan(p plans.Plan, visible visibleFields) plans.Plan {
	p.Files = slices.Clone(p.Files)
	for i, file := range p.Files {
		if !visible.content && file.Content != "" {
			content, err := base64.StdEncoding.DecodeString(file.Content)
			if err != nil {
				content = []byte(file.Content)
			}
			p.Files[i].Content = r.mark(string(content))
		}
	}
	p.Instructions = slices.Clone(p.Instructions)
	for i := range p.Instructions {
		r.instruction(&p.Instructions[i].CommonInstruction, visible)
	}
	p.PeriodicInstructions = slices.Clone(p.PeriodicInstructions)
	for i := range p.PeriodicInstructions {
		r.instruction(&p.PeriodicInstructions[i].CommonInstruction, visible)
	}
	probes := make(map[string]plans.Probe, len(p.Probes))
	for name, probe := range p.Probes {
		probe.HTTPGet.URL = doctor.RedactURL(probe.HTTPGet.URL)
		probes[name] = probe
	}
	if p.Probes != nil {
		p.Probes = probes
	}
	return p
}

func (r redactor) instruction(i *plans.CommonInstruction, visible visibleFields) {
	if !visible.env {
		i.Env = slices.Clone(i.Env)
		for n, pair := range i.Env {
			// A line without "=" is hidden whole.
			if name, value, found := strings.Cut(pair, "="); found {
				i.Env[n] = name + "=" + r.mark(value)
			} else {
				i.Env[n] = r.mark(pair)
			}
		}
	}
	if !visible.args {
		i.Args = slices.Clone(i.Args)
		for n, arg := range i.Args {
			i.Args[n] = r.mark(arg)
		}
	}
	if !visible.content && i.Script != "" {
		i.Script = r.mark(i.Script)
	}
}
