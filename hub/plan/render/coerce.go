package render

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/hub/plan/release"
)

// coerce turns a value from the cluster's specification into one of the argument's type, or says what it should have been. People
// write numbers, booleans and quoted strings alike, and all mean the same to the distribution.
func coerce(t release.ArgType, value any) (any, error) {
	switch t {
	case release.Bool:
		return toBool(value)
	case release.Int:
		return toInt(value)
	case release.List:
		return toList(value)
	case release.Any:
		return toAny(value)
	default:
		return toText(value)
	}
}

func toBool(value any) (any, error) {
	switch v := value.(type) {
	case bool:
		return v, nil
	case string:
		if b, err := strconv.ParseBool(strings.ToLower(strings.TrimSpace(v))); err == nil {
			return b, nil
		}
	}
	return nil, fmt.Errorf("is %s; it takes true or false", describe(value))
}

func toInt(value any) (any, error) {
	text, ok := number(value)
	if s, isText := value.(string); isText {
		text, ok = strings.TrimSpace(s), true
	}
	if ok {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
	}
	return nil, fmt.Errorf("is %s; it takes a whole number", describe(value))
}

func toText(value any) (any, error) {
	if text, ok := scalar(value); ok {
		return text, nil
	}
	return nil, fmt.Errorf("is %s; it takes a text", describe(value))
}

// toAny keeps what the distributions' configuration files can hold: texts, numbers, booleans and lists of them.
func toAny(value any) (any, error) {
	switch v := value.(type) {
	case string, bool:
		return v, nil
	}
	if n, err := toInt(value); err == nil {
		return n, nil
	}
	return toList(value)
}

// toList leaves a single text as it is, which the distributions read as a list of one, and makes name=value of each entry of a map.
func toList(value any) (any, error) {
	if text, ok := scalar(value); ok {
		return text, nil
	}
	if entries, ok := value.(map[string]any); ok {
		return pairs(entries)
	}
	items, ok := value.([]any)
	if texts, isTexts := value.([]string); isTexts {
		for _, text := range texts {
			items = append(items, text)
		}
		ok = true
	}
	if !ok {
		return nil, fmt.Errorf("is %s; it takes a list of texts", describe(value))
	}
	list := make([]string, 0, len(items))
	for i, item := range items {
		text, ok := scalar(item)
		if !ok {
			return nil, fmt.Errorf("has %s at place %d; it takes a list of texts", describe(item), i)
		}
		list = append(list, text)
	}
	return list, nil
}

func pairs(entries map[string]any) (any, error) {
	list := make([]string, 0, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		text, ok := scalar(entries[name])
		if !ok {
			return nil, fmt.Errorf("has %s at %q; it takes a list of texts, or a map of them", describe(entries[name]), name)
		}
		list = append(list, name+"="+text)
	}
	return list, nil
}

func scalar(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	}
	return number(value)
}

// number spells a number without an exponent, whichever type a decoder has given it.
func number(value any) (string, bool) {
	switch v := value.(type) {
	case int:
		return strconv.Itoa(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.FormatInt(int64(v), 10), true
		}
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

// kubeconfigMode is the argument with the permissions of the administrator's kubeconfig on a server, whose digits are octal.
const kubeconfigMode = "write-kubeconfig-mode"

// octalModes are permissions that people write.
var octalModes = []string{"400", "440", "444", "600", "640", "644", "660", "664", "666"}

// checkMode refuses the number that YAML makes of permissions that begin with 0 and have no quotes: 416 of 0640, with whose digits anybody
// could read and write the file.
func checkMode(value any) error {
	text, _ := number(value)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil // it is no number
	}
	if octal := strconv.FormatInt(n, 8); slices.Contains(octalModes, octal) {
		return fmt.Errorf(`is the number %s, which YAML makes of 0%s; write the permissions in quotes, such as "0%s"`, text, octal, octal)
	}
	return nil
}

// checkKubeconfigMode is checkMode, with a warning for a cluster that has started with the number: its servers run, and further ones join.
// Another number is not given to a server that has its configuration.
func (b *builder) checkKubeconfigMode(at string, value any) error {
	misread := checkMode(value)
	if misread == nil || !b.Cluster.Bootstrapped {
		return misread
	}
	before, known := configOf(b.Cluster.Release.Runtime, b.Delivered)
	if text, _ := number(value); known && before.text(kubeconfigMode) != text {
		return misread
	}
	b.problems.doubt(at, "%s", misread)
	return nil
}

// describe names the kind of a value and not the value, which may be a secret.
func describe(value any) string {
	switch value.(type) {
	case nil:
		return "empty"
	case string:
		return "a text"
	case bool:
		return "a boolean"
	case []any, []string:
		return "a list"
	case map[string]any:
		return "a map"
	}
	if _, ok := number(value); ok {
		return "a number"
	}
	return fmt.Sprintf("a %T", value)
}
