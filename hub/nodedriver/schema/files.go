package schema

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

// Files are the flags of a driver that take the path of a file, by the fields that their names make: the value is the name of the field
// that takes the content instead.
type Files map[string]string

var (
	fileFieldName = regexp.MustCompile(`^[a-z][a-zA-Z0-9-]{0,62}$`)
	fileFlagName  = regexp.MustCompile(`^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$`)
)

// takesContent is in Rancher's annotation of google. The flag takes the content itself: Rancher hands a credential on as it is, and makes a
// file only of what is in a machine configuration.
const takesContent = "authEncodedJson:authEncodedJson"

// ParseFiles reads the annotation FileFieldsAnnotation of a NodeDriver.
func ParseFiles(annotation string) (Files, error) {
	files := Files{}
	for pair := range strings.SplitSeq(annotation, ",") {
		if pair = strings.TrimSpace(pair); pair == "" || pair == takesContent {
			continue
		}
		name, field, _ := strings.Cut(pair, ":")
		valid := fileFieldName.MatchString(name) && fileFlagName.MatchString(field) && !reserved[name]
		if valid {
			field = camelCase(field) // Rancher's annotation of vmwarevsphere has cloud-config
		}
		if !valid || files[field] != "" {
			return nil, fmt.Errorf("annotation %s: %.100q is not of the form <field>:<field of the flag>, each once; write, for instance, "+
				"sshKeyContents:sshKeypath", managementv3.FileFieldsAnnotation, pair)
		}
		files[field] = name
	}
	return files, nil
}

// Check returns an error for a flag that the driver does not have, or that takes no text.
func (f Files) Check(fields []Field) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		at := slices.IndexFunc(fields, func(field Field) bool { return field.File && field.Name == f[name] })
		if at < 0 {
			return fmt.Errorf("annotation %s: the driver has no field %s; remove %s:%s or correct it", managementv3.FileFieldsAnnotation, name,
				f[name], name)
		}
		flag := fields[at].Flag
		if _, isText := flag.Default.(string); !isText {
			return fmt.Errorf("annotation %s: %s is not the path of a file, but %s; remove %s:%s", managementv3.FileFieldsAnnotation, name,
				flag.Kind, f[name], name)
		}
	}
	return nil
}
