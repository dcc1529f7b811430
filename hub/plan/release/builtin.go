package release

import (
	"embed"
	"slices"

	"sigs.k8s.io/yaml"
)

//go:embed data/*.yaml
var data embed.FS

// builtins hold the data files by runtime. They are parsed once, and the arguments of all their releases made once; nothing of it is ever
// changed. A test proves that they parse.
var builtins = map[string]builtin{K3s: load(K3s), RKE2: load(RKE2)}

// builtin is the content of a data file.
type builtin struct {
	Minors struct {
		First int `json:"first"`
		Last  int `json:"last"`
	} `json:"minors"`
	Agent  map[ArgType][]string `json:"agent"`
	Server map[ArgType][]string `json:"server"`
	Since  map[string]int       `json:"since"`
	Until  map[string]int       `json:"until"`
	// SincePatch holds, by argument or feature and by minor, the first patch release that has it.
	SincePatch map[string]map[int]int `json:"sincePatch"`
	Features   map[string]span        `json:"features"`

	// tables hold, by minor, the arguments of its patch releases, those of the first ones first.
	tables map[int][]table
	err    error
}

// table is the arguments of a minor from a patch release on, up to that of the next table.
type table struct {
	patch         int
	agent, server map[string]ArgType
}

// span is a range of minors; a bound of 0 is open, and until is the first minor outside.
type span struct {
	Since int `json:"since"`
	Until int `json:"until"`
}

func (s span) has(minor int) bool {
	return minor >= s.Since && (s.Until == 0 || minor < s.Until)
}

func load(runtime string) builtin {
	var c builtin
	raw, err := data.ReadFile("data/" + runtime + ".yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(raw, &c)
	}
	c.err = err
	c.tables = map[int][]table{}
	for minor := c.Minors.First; minor <= c.Minors.Last; minor++ {
		for _, patch := range c.patches(minor) {
			c.tables[minor] = append(c.tables[minor], c.table(minor, patch))
		}
	}
	return c
}

// patches are the patch releases of a minor that brought arguments, and the first one of all, sorted.
func (c builtin) patches(minor int) []int {
	found := []int{0}
	for _, since := range c.SincePatch {
		if patch, listed := since[minor]; listed {
			found = append(found, patch)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// table makes the arguments of a patch release.
func (c builtin) table(minor, patch int) table {
	t := table{patch: patch, agent: map[string]ArgType{}, server: map[string]ArgType{}}
	c.fill(t.agent, c.Agent, minor, patch)
	c.fill(t.server, c.Agent, minor, patch)
	c.fill(t.server, c.Server, minor, patch)
	return t
}

// nearest is the minor next to the one asked for that the data is about.
func (c builtin) nearest(minor int) int {
	return min(max(minor, c.Minors.First), c.Minors.Last)
}

// release makes the release of a version with the arguments of a minor.
func (c builtin) release(full string, v version, minor int) Release {
	var args table
	for _, t := range c.tables[minor] {
		// A minor after those that are known has what their patch releases brought.
		if v.minor > minor || t.patch <= v.patch {
			args = t
		}
	}
	r := Release{Version: full, Runtime: v.runtime, Minor: v.minor, AgentArgs: args.agent, ServerArgs: args.server}
	for name, s := range c.Features {
		// The ranges of features are of all minors, also those whose arguments are not known.
		if s.has(v.minor) && c.hasPatch(name, v.minor, v.patch) {
			r.Features = append(r.Features, name)
		}
	}
	slices.Sort(r.Features)
	return r
}

func (c builtin) fill(into map[string]ArgType, from map[ArgType][]string, minor, patch int) {
	for t, names := range from {
		for _, name := range names {
			if (span{Since: c.Since[name], Until: c.Until[name]}).has(minor) && c.hasPatch(name, minor, patch) {
				into[name] = t
			}
		}
	}
}

// hasPatch reports whether a patch release of a minor has what came with a patch release; all else has been there before.
func (c builtin) hasPatch(name string, minor, patch int) bool {
	since, limited := c.SincePatch[name]
	if !limited {
		return true
	}
	if first, listed := since[minor]; listed {
		return patch >= first
	}
	for other := range since {
		if other < minor {
			return true
		}
	}
	return false
}
