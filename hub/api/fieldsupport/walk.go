package fieldsupport

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// field is one field of a spec.
type field struct {
	// pattern is its path below spec with [] for the elements of a list or map, path has their names or numbers.
	pattern, path string
	// value is addressable where the spec is; it is the zero value where a type is walked.
	value reflect.Value
	// owner is the struct that holds it, name its name there.
	owner reflect.Type
	name  string
}

// walk calls visit for the fields of a struct and, as long as visit returns true, for what is below them. Kinds of other modules, such as
// Tolerations, are one field.
func walk(v reflect.Value, pattern, path string, visit func(field) bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "" && (f.Anonymous || strings.Contains(options, "inline")) {
			walk(v.Field(i), pattern, path, visit)
			continue
		}
		at := field{pattern: join(pattern, tag), path: join(path, tag), value: v.Field(i), owner: v.Type(), name: f.Name}
		if visit(at) {
			below(at.value, at.pattern, at.path, visit)
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func below(v reflect.Value, pattern, path string, visit func(field) bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			below(v.Elem(), pattern, path, visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			below(v.Index(i), pattern+"[]", fmt.Sprintf("%s[%s]", path, nameOf(v.Index(i), i)), visit)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			below(v.MapIndex(key), pattern+"[]", fmt.Sprintf("%s[%v]", path, key), visit)
		}
	case reflect.Struct:
		if ours(v.Type()) {
			walk(v, pattern, path, visit)
		}
	}
}

// nameOf is how messages call an element of a list: by its name, or by its number.
func nameOf(v reflect.Value, i int) string {
	if v.Kind() == reflect.Struct {
		if name := v.FieldByName("Name"); name.IsValid() && name.Kind() == reflect.String && name.String() != "" {
			return name.String()
		}
	}
	return fmt.Sprint(i)
}

// ours reports whether a struct is one of hub/api whose fields are known here.
func ours(t reflect.Type) bool {
	return strings.HasPrefix(t.PkgPath(), apiPackage) && !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]())
}

const apiPackage = "github.com/drover-dev/drover/hub/api/"

// isSet reports whether a value asks for anything: false, 0 and "" do not, even where a pointer tells them from no value.
func isSet(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && isSet(v.Elem())
	case reflect.Slice, reflect.Map:
		return v.Len() > 0
	}
	return !v.IsZero()
}
