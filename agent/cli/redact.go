package cli

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/drover-dev/drover/plans"
)

// redaction puts short marks in the place of what may be secret. Equal values have equal marks within one answer, so that they can be
// compared; the key is thrown away with the process, so that nobody can find a value by trying.
type redaction struct{ key []byte }

func newRedaction() redaction {
	return redaction{key: []byte(rand.Text())}
}

func (r redaction) mark(value string) string {
	sum := hmac.New(sha256.New, r.key)
	sum.Write([]byte(value))
	return fmt.Sprintf("(hidden, %d bytes, %s)", len(value), hex.EncodeToString(sum.Sum(nil))[:8])
}

// shown is what of a plan is shown as it is.
type shown struct{ content, env, args bool }

// plan is a copy of a plan in which what may be secret is hidden. The result is for reading and cannot be applied: a hidden content is
// no base64.
func (r redaction) plan(p plans.Plan, show shown) plans.Plan {
	p.Files = slices.Clone(p.Files)
	for i, file := range p.Files {
		if !show.content && file.Content != "" {
			content, err := base64.StdEncoding.DecodeString(file.Content)
			if err != nil {
				content = []byte(file.Content)
			}
			p.Files[i].Content = r.mark(string(content))
		}
	}
	p.Instructions = slices.Clone(p.Instructions)
	for i := range p.Instructions {
		r.instruction(&p.Instructions[i].CommonInstruction, show)
	}
	p.PeriodicInstructions = slices.Clone(p.PeriodicInstructions)
	for i := range p.PeriodicInstructions {
		r.instruction(&p.PeriodicInstructions[i].CommonInstruction, show)
	}
	probes := make(map[string]plans.Probe, len(p.Probes))
	for name, probe := range p.Probes {
		probe.HTTPGet.URL = withoutUser(probe.HTTPGet.URL)
		probes[name] = probe
	}
	if p.Probes != nil {
		p.Probes = probes
	}
	return p
}

func (r redaction) instruction(i *plans.CommonInstruction, show shown) {
	if !show.env {
		i.Env = slices.Clone(i.Env)
		for n, pair := range i.Env {
			// A line without "=" is hidden whole: nobody knows what it is.
			if name, value, found := strings.Cut(pair, "="); found {
				i.Env[n] = name + "=" + r.mark(value)
			} else {
				i.Env[n] = r.mark(pair)
			}
		}
	}
	if !show.args {
		i.Args = slices.Clone(i.Args)
		for n, arg := range i.Args {
			i.Args[n] = r.mark(arg)
		}
	}
	if !show.content && i.Script != "" {
		i.Script = r.mark(i.Script)
	}
}

// withoutUser hides a name and a password in a URL.
func withoutUser(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil && strings.Contains(text, "@"):
		return "(hidden, it is no URL and may hold a password)"
	case err != nil || u.User == nil:
		return text
	}
	u.User = url.User("hidden")
	return u.String()
}
