package release

import (
	"embed"
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"
)

//go:embed data/*.yaml
var data embed.FS

// catalogs hold the data files by runtime. They are parsed once and never changed; a test proves that they parse.
var catalogs = map[string]catalog{K3s: load(K3s), RKE2: load(RKE2)}

// catalog is the content of a data file.
type catalog struct {
	Minors struct {
		First int `json:"first"`
		Last  int `json:"last"`
	} `json:"minors"`
	Agent    map[ArgType][]string `json:"agent"`
	Server   map[ArgType][]string `json:"server"`
	Since    map[string]int       `json:"since"`
	Until    map[string]int       `json:"until"`
	Features map[string]span      `json:"features"`

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

func load(runtime string) catalog {
	var c catalog
	raw, err := data.ReadFile("data/" + runtime + ".yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(raw, &c)
	}
	c.err = err
	return c
}

// known spells the range of minors for a message.
func (c catalog) known() string {
	return fmt.Sprintf("v1.%d–v1.%d", c.Minors.First, c.Minors.Last)
}

func (c catalog) release(full string, v version) Release {
	r := Release{Version: full, Runtime: v.runtime, Minor: v.minor, AgentArgs: map[string]ArgType{}, ServerArgs: map[string]ArgType{}}
	c.fill(r.AgentArgs, c.Agent, v.minor)
	c.fill(r.ServerArgs, c.Agent, v.minor)
	c.fill(r.ServerArgs, c.Server, v.minor)
	for name, s := range c.Features {
		if s.has(v.minor) {
			r.Features = append(r.Features, name)
		}
	}
	slices.Sort(r.Features)
	return r
}

func (c catalog) fill(into map[string]ArgType, from map[ArgType][]string, minor int) {
	for t, names := range from {
		for _, name := range names {
			if (span{Since: c.Since[name], Until: c.Until[name]}).has(minor) {
				into[name] = t
			}
		}
	}
}
