package release

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Published is release data in the format in which it is published for hubs: for each runtime a list of releases with the arguments,
// features and charts of each. What is about other things in the same document is ignored.
type Published struct {
	// releases are by runtime, sorted by version.
	releases map[string][]publishedRelease
}

// publishedRelease is what the document says of a release.
type publishedRelease struct {
	Version    string                     `json:"version"`
	ServerArgs map[string]publishedArg    `json:"serverArgs"`
	AgentArgs  map[string]publishedArg    `json:"agentArgs"`
	Features   map[string]string          `json:"featureVersions"`
	Charts     map[string]json.RawMessage `json:"charts"`

	version version
}

// publishedArg describes an argument. Options and defaults, which the document has too, are left to the distribution to judge.
type publishedArg struct {
	Type string `json:"type"`
}

// ParsePublished reads release data. Releases that no hub could install, such as those without a build of k3s or RKE2, are left out.
func ParsePublished(raw []byte) (*Published, error) {
	var document map[string]json.RawMessage
	if err := json.Unmarshal(raw, &document); err != nil {
		return nil, fmt.Errorf("the release data is no JSON object: %w", err)
	}
	p := &Published{releases: map[string][]publishedRelease{}}
	for _, runtime := range []string{K3s, RKE2} {
		var part struct {
			Releases []publishedRelease `json:"releases"`
		}
		if len(document[runtime]) == 0 {
			continue
		}
		if err := json.Unmarshal(document[runtime], &part); err != nil {
			return nil, fmt.Errorf("the release data of %s cannot be read: %w", runtime, err)
		}
		for _, r := range part.Releases {
			v, err := parse(r.Version)
			if err != nil || v.runtime != runtime {
				continue
			}
			r.version = v
			p.releases[runtime] = append(p.releases[runtime], r)
		}
		slices.SortStableFunc(p.releases[runtime], func(a, b publishedRelease) int { return a.version.compare(b.version) })
	}
	if len(p.releases) == 0 {
		return nil, errors.New(`the release data names no release; it needs "k3s" or "rke2", each with a list "releases"`)
	}
	return p, nil
}

// Len is how many releases there are.
func (p *Published) Len() int {
	var n int
	for _, releases := range p.releases {
		n += len(releases)
	}
	return n
}

// knows reports whether there is data about a runtime.
func (p *Published) knows(runtime string) bool {
	return p != nil && len(p.releases[runtime]) > 0
}

// nearest finds the release of a version, or else the newest before it, or else the oldest; nil where there is no data.
func (p *Published) nearest(v version) (found *publishedRelease, exact bool) {
	if !p.knows(v.runtime) {
		return nil, false
	}
	releases := p.releases[v.runtime]
	i, exact := slices.BinarySearchFunc(releases, v, func(r publishedRelease, v version) int { return r.version.compare(v) })
	if !exact && i > 0 {
		i--
	}
	return &releases[i], exact
}

// addTo adds to a release what the data knows beyond it. Where both know an argument, what this program was built with is more exact: it
// tells lists and numbers from texts.
func (r *publishedRelease) addTo(to *Release) {
	to.AgentArgs, to.ServerArgs = maps.Clone(to.AgentArgs), maps.Clone(to.ServerArgs) // those of other releases stay as they are
	add := func(into map[string]ArgType, args map[string]publishedArg) {
		for name, arg := range args {
			if _, known := into[name]; !known {
				into[name] = arg.argType()
			}
		}
	}
	add(to.AgentArgs, r.AgentArgs)
	add(to.ServerArgs, r.AgentArgs)
	add(to.ServerArgs, r.ServerArgs)
	if major(r.Features["encryption-key-rotation"]) >= 2 && !to.Has(RotateEncryptionKeys) {
		to.Features = append(to.Features, RotateEncryptionKeys)
		slices.Sort(to.Features)
	}
	to.Charts = slices.Sorted(maps.Keys(r.Charts))
}

func (a publishedArg) argType() ArgType {
	switch a.Type {
	case "string", "enum":
		return String
	case "bool", "boolean":
		return Bool
	case "int", "integer", "number":
		return Int
	case "array", "list":
		return List
	}
	return Any
}

// major is the first number of a version such as 2.0.0; 0 where there is none.
func major(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(first)
	return n
}
