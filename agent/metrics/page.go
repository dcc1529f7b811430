package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// contentType is that of the Prometheus text format, version 0.0.4.
//
// The format is written here and not by client_golang, which would make the agent 2.9 MB larger on disk and 2.4 MB in memory, also where
// metrics are disabled. The tests parse and lint the output with Prometheus's own libraries.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

const (
	gauge   = "gauge"
	counter = "counter"
)

// Page collects the samples of one scrape. The zero value is empty.
type Page struct {
	families []*family
	byName   map[string]*family
}

// family is all samples of one name.
type family struct {
	name, help, metricType string
	samples                []string
}

// Gauge adds a sample of a value that can go down; labels are names and values in turn.
func (p *Page) Gauge(name, help string, value float64, labels ...string) {
	p.add(gauge, name, help, value, labels)
}

// Counter adds a sample of a value that only increases; labels are names and values in turn.
func (p *Page) Counter(name, help string, value float64, labels ...string) {
	p.add(counter, name, help, value, labels)
}

// Timestamp adds a gauge in seconds since 1970, unless the time is zero.
func (p *Page) Timestamp(name, help string, at time.Time, labels ...string) {
	if !at.IsZero() {
		p.Gauge(name, help, float64(at.UnixNano())/float64(time.Second), labels...)
	}
}

// add accepts the samples of a name in any order.
func (p *Page) add(metricType, name, help string, value float64, labels []string) {
	f := p.byName[name]
	if f == nil {
		f = &family{name: name, help: help, metricType: metricType}
		if p.byName == nil {
			p.byName = map[string]*family{}
		}
		p.byName[name] = f
		p.families = append(p.families, f)
	}
	f.samples = append(f.samples, name+formatLabels(labels)+" "+strconv.FormatFloat(value, 'g', -1, 64)+"\n")
}

// Respond writes the page as the response to a scrape: names in the order in which they were added, the samples of each sorted, so that two
// pages can be compared.
func (p *Page) Respond(w http.ResponseWriter) {
	var b strings.Builder
	for _, f := range p.families {
		b.WriteString("# HELP " + f.name + " " + f.help + "\n# TYPE " + f.name + " " + f.metricType + "\n")
		slices.Sort(f.samples)
		for _, sample := range f.samples {
			b.WriteString(sample)
		}
	}
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write([]byte(b.String()))
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// formatLabels accepts any values: a plan may name a probe as it likes.
func formatLabels(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	var b strings.Builder
	separator := "{"
	for i := 0; i+1 < len(labels); i += 2 {
		b.WriteString(separator + labels[i] + `="` + labelEscaper.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD")) + `"`)
		separator = ","
	}
	b.WriteString("}")
	return b.String()
}
