package schema

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/nodedriver/plugin"
)

// Files are the flags of a driver that take the path of a file, by the fields that their names make: the value is the name of the field that
// takes the content instead.
type Files map[string]string

var fileFieldName = regexp.MustCompile(`^[a-z][a-zA-Z0-9-]{0,62}$`)

// ParseFiles reads the annotation FileFieldsAnnotation of a NodeDriver.
func ParseFiles(annotation string) (Files, error) {
	files := Files{}
	for pair := range strings.SplitSeq(annotation, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, field, _ := strings.Cut(pair, ":")
		if !fileFieldName.MatchString(name) || field == "" || files[field] != "" || reserved[name] {
			return nil, fmt.Errorf("annotation %s: %.100q is not of the form <field>:<field of the flag>, each once; write, for instance, "+
				"sshKeyContents:sshKeypath", managementv3.FileFieldsAnnotation, pair)
		}
		files[field] = name
	}
	return files, nil
}

// name returns the name of the field of a flag, and whether it takes the content of a file.
func (f Files) name(flag plugin.Flag, name string) (string, bool, error) {
	alias, isFile := f[name]
	if !isFile {
		return name, false, nil
	}
	if _, isText := flag.Default.(string); !isText {
		return "", false, fmt.Errorf("annotation %s: %s is not the path of a file, but %s", managementv3.FileFieldsAnnotation, name, flag.Kind)
	}
	return alias, true, nil
}

// checkFound returns an error for a flag that the driver does not have.
func (f Files) checkFound(fields []Field) error {
	for name, alias := range f {
		if !slices.ContainsFunc(fields, func(field Field) bool { return field.File && field.Name == alias }) {
			return fmt.Errorf("annotation %s: the driver has no field %s; remove %s:%s or correct it", managementv3.FileFieldsAnnotation, name,
				alias, name)
		}
	}
	return nil
}
