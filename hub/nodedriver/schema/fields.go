// Package schema makes the kinds of a node driver from its create flags: values in, values out. What a driver says of its flags is checked
// before anything is made of it.
package schema

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/drover-dev/drover/hub/nodedriver/plugin"
)

// Field is a create flag as a field of the driver's kinds.
type Field struct {
	// Name of the field: digitalocean-private-networking is privateNetworking.
	Name string
	Flag plugin.Flag
	// File is true if the field takes the content of a file, and the flag its path.
	File bool
}

const (
	maxDefault = 16 << 10
	maxUsage   = 400
	// maxText is the length of a text in a field; user data is the longest.
	maxText = 64 << 10
	maxList = 256
)

var (
	driverName = regexp.MustCompile(`^[a-z][a-z0-9]{0,30}$`)
	flagName   = regexp.MustCompile(`^[a-z0-9]+(-[a-zA-Z0-9]+)+$`)
)

// reserved are names that the kinds have for something else.
var reserved = map[string]bool{
	"apiVersion": true, "kind": true, "metadata": true, "spec": true, "status": true, "common": true, "providerID": true,
}

// ValidateName returns what is wrong with the name of a driver, empty if nothing is.
func ValidateName(driver string) string {
	if driverName.MatchString(driver) {
		return ""
	}
	return fmt.Sprintf("%q is no name of a driver: use 1 to 31 lower-case letters and digits, beginning with a letter, such as digitalocean",
		driver)
}

// Fields returns the fields for a driver's flags, in their order.
func Fields(driver string, flags []plugin.Flag, files Files) ([]Field, error) {
	fields, seen := make([]Field, 0, len(flags)), map[string]string{}
	for _, flag := range flags {
		rest, ok := strings.CutPrefix(flag.Name, driver+"-")
		if !ok || !flagName.MatchString(flag.Name) || len(flag.Name) > 100 {
			return nil, fmt.Errorf("flag %.100q is not of the form %s-<words joined by ->: is spec.displayName the name of this driver?",
				flag.Name, driver)
		}
		name := camelCase(rest)
		alias, isFile := files[name]
		if isFile {
			name = alias
		}
		if reserved[name] {
			return nil, fmt.Errorf("flag %s would be the field %s, which has another meaning", flag.Name, name)
		}
		if other, ok := seen[name]; ok {
			return nil, fmt.Errorf("flags %s and %s would both be the field %s", other, flag.Name, name)
		}
		seen[name] = flag.Name
		if err := checkDefault(flag); err != nil {
			return nil, err
		}
		flag.Usage = clean(flag.Usage)
		fields = append(fields, Field{name, flag, isFile})
	}
	return fields, nil
}

func checkDefault(flag plugin.Flag) error {
	values := []string{}
	switch v := flag.Default.(type) {
	case string:
		values = []string{v}
	case []string:
		values = v
	}
	if len(values) > maxList {
		return fmt.Errorf("flag %s has a default of %d values, more than %d", flag.Name, len(values), maxList)
	}
	for _, value := range values {
		if len(value) > maxDefault || !utf8.ValidString(value) {
			return fmt.Errorf("flag %s has a default that is longer than %d bytes or no text", flag.Name, maxDefault)
		}
	}
	return nil
}

// camelCase joins words: the first as it is, of the others the first letter becomes upper case.
func camelCase(words string) string {
	var out strings.Builder
	for i, word := range strings.Split(words, "-") {
		if i == 0 {
			out.WriteString(strings.ToLower(word[:1]) + word[1:])
			continue
		}
		out.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return out.String()
}

// clean makes a description of what may be any bytes.
func clean(usage string) string {
	usage = strings.Join(strings.Fields(strings.ToValidUTF8(usage, "")), " ")
	if len(usage) > maxUsage {
		usage = strings.ToValidUTF8(usage[:maxUsage], "")
	}
	return usage
}
