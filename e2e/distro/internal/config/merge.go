package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// values holds what was given for each key, as texts.
type values map[string][]string

func (v values) one(name, def string) string { return cmp.Or(strings.Join(v[name], ""), def) }

func (v values) is(name string) bool {
	b, _ := strconv.ParseBool(v.one(name, "false"))
	return b
}

func (v values) number(name string, def int) int {
	if n, err := strconv.Atoi(v.one(name, "")); err == nil {
		return n
	}
	return def
}

// readFiles merges config.yaml and the files of config.yaml.d in the order of their names. A later file wins over an
// earlier one; a key with a + at its end adds to the earlier values. Files that are not there are skipped.
func readFiles(main string, role Role) (values, error) {
	files := []string{main}
	more, err := filepath.Glob(filepath.Join(main+".d", "*.yaml"))
	if err != nil {
		return nil, err
	}
	yml, _ := filepath.Glob(filepath.Join(main+".d", "*.yml"))
	more = append(more, yml...)
	slices.Sort(more)
	out := values{}
	for _, file := range append(files, more...) {
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading configuration: %w", err)
		}
		if err := out.merge(raw, role); err != nil {
			return nil, fmt.Errorf("reading configuration %s: %w", file, err)
		}
	}
	return out, nil
}

// merge reads one file, YAML or JSON, into v.
func (v values) merge(raw []byte, role Role) error {
	var doc map[string]any
	if err := yaml.Unmarshal(raw, &doc, func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d }); err != nil {
		return err
	}
	var faults []error
	for name, value := range doc {
		bare := strings.TrimSuffix(name, "+")
		texts, err := flatten(value)
		if err == nil {
			texts, err = check(bare, texts, role)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
			continue
		}
		if bare != name {
			texts = append(slices.Clone(v[bare]), texts...)
		}
		v[bare] = texts
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(faults...)
}

// ErrUnknownKey is in the error for a key that k3s does not know.
var ErrUnknownKey = errors.New("no such configuration key")

// check holds the texts against the type of the key, and splits lists that allow commas.
func check(name string, texts []string, role Role) ([]string, error) {
	k, ok := keys[name]
	if !ok {
		return nil, ErrUnknownKey
	}
	if k.server && role == Agent {
		return nil, fmt.Errorf("%w for an agent", ErrUnknownKey)
	}
	switch k.kind {
	case list:
		return texts, nil
	case csv:
		var out []string
		for _, t := range texts {
			for part := range strings.SplitSeq(t, ",") {
				if part = strings.TrimSpace(part); part != "" {
					out = append(out, part)
				}
			}
		}
		return out, nil
	}
	if len(texts) > 1 {
		return nil, fmt.Errorf("takes one value, not %d", len(texts))
	}
	for _, t := range texts {
		var err error
		switch k.kind {
		case flag:
			_, err = strconv.ParseBool(t)
		case number:
			_, err = strconv.Atoi(t)
		case duration:
			_, err = time.ParseDuration(t)
		}
		if err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// flatten turns a scalar or a list of scalars into texts.
func flatten(value any) ([]string, error) {
	switch v := value.(type) {
	case nil:
		return nil, nil
	case string:
		return []string{v}, nil
	case bool:
		return []string{strconv.FormatBool(v)}, nil
	case json.Number:
		return []string{v.String()}, nil
	case []any:
		var out []string
		for _, item := range v {
			if _, nested := item.([]any); nested {
				return nil, errors.New("a list may not hold lists")
			}
			texts, err := flatten(item)
			if err != nil {
				return nil, err
			}
			out = append(out, texts...)
		}
		return out, nil
	}
	return nil, fmt.Errorf("takes no value of type %T", value)
}
