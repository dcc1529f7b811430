package metrics

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// contentType is that of the text format, version 0.0.4.
//
// The format is written here and not by Prometheus's own library: that one would make the agent 2.9 MB larger on disk and 2.4 MB in
// memory, also where nobody asks for metrics. The tests read what is written here with that library.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

type kind string

const (
	gauge   kind = "gauge"
	counter kind = "counter"
)

// Gauge adds a value that goes up and down; labels are names and values in turn.
func (p *Page) Gauge(name, help string, value float64, labels ...string) {
	p.add(gauge, name, help, value, labels...)
}

// Counter adds a value that only goes up.
func (p *Page) Counter(name, help string, value float64, labels ...string) {
	p.add(counter, name, help, value, labels...)
}

// Answer writes the page as the answer to a scrape.
func (p *Page) Answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", contentType)
	_, _ = p.WriteTo(w)
}

// Page is what one scrape gets.
type Page struct {
	families []*family
	byName   map[string]*family
}

// family is all samples of one name.
type family struct {
	name, help string
	kind       kind
	samples    []string
}

// add adds a sample; labels are names and values in turn. Samples of a name need not come one after the other.
func (p *Page) add(kind kind, name, help string, value float64, labels ...string) {
	f := p.byName[name]
	if f == nil {
		f = &family{name: name, help: help, kind: kind}
		if p.byName == nil {
			p.byName = map[string]*family{}
		}
		p.byName[name] = f
		p.families = append(p.families, f)
	}
	f.samples = append(f.samples, name+format(labels)+" "+strconv.FormatFloat(value, 'g', -1, 64)+"\n")
}

// Since adds a point in time, unless it is not known.
func (p *Page) Since(name, help string, at time.Time, labels ...string) {
	if !at.IsZero() {
		p.add(gauge, name, help, float64(at.UnixNano())/float64(time.Second), labels...)
	}
}

// WriteTo writes the page in the order in which names were added, and the samples of each sorted, so that two pages can be compared.
func (p *Page) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	for _, f := range p.families {
		b.WriteString("# HELP " + f.name + " " + f.help + "\n# TYPE " + f.name + " " + string(f.kind) + "\n")
		slices.Sort(f.samples)
		for _, sample := range f.samples {
			b.WriteString(sample)
		}
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// format writes labels. A plan may name a probe as it likes, so values are made text first.
func format(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	var b strings.Builder
	separator := "{"
	for i := 0; i+1 < len(labels); i += 2 {
		b.WriteString(separator + labels[i] + `="` + escape.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD")) + `"`)
		separator = ","
	}
	b.WriteString("}")
	return b.String()
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
