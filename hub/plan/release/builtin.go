package release

import (
	"embed"
	"math"
	"slices"

	"sigs.k8s.io/yaml"
)

//go:embed data/*.yaml
var data embed.FS

// builtins hold the data files by runtime. They are parsed once and never changed; a test proves that they parse.
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
	// SincePatch holds, by argument and minor, the first patch release that has the argument.
	SincePatch map[string]map[int]int `json:"sincePatch"`
	Features   map[string]span        `json:"features"`

	err error
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
	return c
}

// nearest is the minor next to the one asked for that the data is about.
func (c builtin) nearest(minor int) int {
	return min(max(minor, c.Minors.First), c.Minors.Last)
}

// release makes the release of a version with the arguments of a minor.
func (c builtin) release(full string, v version, minor int) Release {
	patch := v.patch
	if v.minor > minor {
		patch = math.MaxInt
	}
	r := Release{Version: full, Runtime: v.runtime, Minor: v.minor, AgentArgs: map[string]ArgType{}, ServerArgs: map[string]ArgType{}}
	c.fill(r.AgentArgs, c.Agent, minor, patch)
	c.fill(r.ServerArgs, c.Agent, minor, patch)
	c.fill(r.ServerArgs, c.Server, minor, patch)
	for name, s := range c.Features {
		// The ranges of features are of all minors, also those whose arguments are not known.
		if s.has(v.minor) {
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

// hasPatch reports whether a patch release of a minor has an argument that came with a patch release; all others have been there before.
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
