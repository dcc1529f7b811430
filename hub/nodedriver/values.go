package nodedriver

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
)

// InvalidError tells which field of a machine has to be written otherwise.
type InvalidError struct{ Message string }

func (e *InvalidError) Error() string { return e.Message }

func invalid(format string, args ...any) error { return &InvalidError{fmt.Sprintf(format, args...)} }

// values are the values of a driver's flags: of the machine's fields, else of the credential, else the defaults. The API server writes the
// defaults into every machine configuration, so that a default there does not count where the credential has the field.
func values(fields []schema.Field, spec map[string]any, credential map[string]string) (map[string]any, error) {
	out := map[string]any{}
	for _, field := range fields {
		given, ok := spec[field.Name]
		if _, has := credential[field.Name]; has && isDefault(field, given) {
			ok = false
		}
		if text, isText := given.(string); !ok || given == nil || isText && text == "" {
			if given, ok = lookup(field, credential); !ok {
				out[field.Flag.Name] = field.Flag.Default
				continue
			}
		}
		value, err := convert(field, given)
		if err != nil {
			return nil, err
		}
		out[field.Flag.Name] = value
	}
	return out, nil
}

// isDefault reports whether a value is the default of a field.
func isDefault(field schema.Field, given any) bool {
	value, err := convert(field, given)
	return err == nil && reflect.DeepEqual(value, field.Flag.Default)
}

// convert makes the type of a flag of a value.
func convert(field schema.Field, given any) (any, error) {
	switch field.Flag.Default.(type) {
	case string:
		if text, ok := given.(string); ok {
			return text, nil
		}
	case bool:
		switch v := given.(type) {
		case bool:
			return v, nil
		case string:
			if b, err := strconv.ParseBool(v); err == nil {
				return b, nil
			}
		}
	case int:
		if n, err := strconv.Atoi(fmt.Sprint(given)); err == nil {
			return n, nil
		}
	case []string:
		if list, ok := given.([]any); ok {
			texts := make([]string, len(list))
			for i, item := range list {
				texts[i] = fmt.Sprint(item)
			}
			return texts, nil
		}
		if text, ok := given.(string); ok {
			return strings.Split(text, ","), nil
		}
	}
	return nil, invalid("spec.%s must be of the type of the flag %s, which is %s", field.Name, field.Flag.Name, field.Flag.Kind)
}

// fitting are the fields of a machine that its driver takes. They cannot be changed any more, and the driver may be of another version than
// the one that has created the machine, with flags of other types.
func fitting(fields []schema.Field, spec map[string]any) map[string]any {
	out := maps.Clone(spec)
	for _, field := range fields {
		if _, err := convert(field, out[field.Name]); err != nil {
			delete(out, field.Name)
		}
	}
	return out
}

// prefixes begin the environment variables of drivers that do not begin with the driver's name.
var prefixes = map[string]string{
	"amazonec2": "AWS", "openstack": "OS", "rackspace": "OS", "vmwarevcloudair": "VCLOUDAIR", "vmwarefusion": "FUSION",
	"vmwarevsphere": "VSPHERE",
}

// Credential returns the values of a cloud credential by the field that they are for. Keys of its Secret are
// <driver>credentialConfig-<field> or the field alone; those of another driver are left out.
func Credential(driver string, data map[string][]byte) map[string]string {
	out := map[string]string{}
	for key, value := range data {
		of, field, qualified := strings.Cut(key, "-")
		if !qualified {
			field = key
		} else if !strings.EqualFold(of, driver+"credentialConfig") {
			continue
		}
		if field != "" {
			out[field] = string(value)
		}
	}
	return out
}

// lookup is the value of a credential for a flag: by the name of its field, or by that of its environment variable.
func lookup(field schema.Field, credential map[string]string) (any, bool) {
	if value, ok := credential[field.Name]; ok {
		return value, true
	}
	if field.Flag.EnvVar == "" {
		return nil, false
	}
	driver, _, _ := strings.Cut(field.Flag.Name, "-")
	for name, value := range credential {
		if variable(driver, name) == field.Flag.EnvVar {
			return value, true
		}
	}
	return nil, false
}

// unused are the fields of a credential for which the driver has no flag, in order. They alone are no error: the driver may know them as
// environment variables.
func unused(fields []schema.Field, credential map[string]string) []string {
	left := maps.Clone(credential)
	for _, field := range fields {
		delete(left, field.Name)
		maps.DeleteFunc(left, func(name, _ string) bool {
			driver, _, _ := strings.Cut(field.Flag.Name, "-")
			return variable(driver, name) == field.Flag.EnvVar
		})
	}
	return slices.Sorted(maps.Keys(left))
}

// explain adds to the error of a driver what its credential has for nothing, such as a misspelled field.
func (m *Machine) explain(fields []schema.Field, err error) error {
	const most = 5
	var wrong *InvalidError
	if err == nil || errors.As(err, &wrong) {
		return err
	}
	var quoted []string
	for _, name := range unused(fields, m.Credential) {
		quoted = append(quoted, fmt.Sprintf("%.60q", name))
	}
	if len(quoted) == 0 {
		return err
	}
	return fmt.Errorf("%w; driver %s has no field for what the cloud credential calls %s", err, m.Driver,
		strings.Join(quoted[:min(len(quoted), most)], ", "))
}

// variable is the environment variable of a credential's field: accessKey of amazonec2 is AWS_ACCESS_KEY.
func variable(driver, field string) string {
	prefix, ok := prefixes[driver]
	if !ok {
		prefix = strings.ToUpper(driver)
	}
	var out strings.Builder
	for i, r := range field {
		if r >= 'A' && r <= 'Z' && i > 0 {
			out.WriteByte('_')
		}
		out.WriteRune(r)
	}
	return prefix + "_" + strings.ToUpper(out.String())
}

// environment is a credential as environment variables, which drivers read that ask the library of their cloud for it.
func environment(driver string, credential map[string]string) []string {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(credential)) {
		if value := credential[name]; !strings.ContainsRune(value, 0) {
			env = append(env, variable(driver, name)+"="+value)
		}
	}
	return env
}

// secretField matches the names of fields whose values are kept out of messages.
var secretField = regexp.MustCompile(
	`(?i)(password|passwd|secret|token|accesskey|apikey|privatekey|credential|userdata|authencodedjson|^auth$|kubeconfig)`)

// secrets are the values that must not appear in messages and logs.
func (m *Machine) secrets() []string {
	out := slices.AppendSeq(proxySecrets(), maps.Values(m.Credential))
	files := slices.Collect(maps.Values(m.Files))
	for name, value := range m.Spec {
		if text, ok := value.(string); ok && (secretField.MatchString(name) || slices.Contains(files, name)) {
			out = append(out, text)
		}
	}
	if m.State != nil {
		for name, content := range m.State.Files {
			if strings.HasPrefix(name, fieldPrefix) {
				out = append(out, string(content))
			}
		}
	}
	out = append(out, m.State.secrets()...)
	for _, match := range token.FindAllStringSubmatch(string(m.Script), -1) {
		out = append(out, match[1])
	}
	return out
}

// token matches the token in the bootstrap data.
var token = regexp.MustCompile(`CATTLE_TOKEN=['"]?([^'"\s]+)`)

// Redact returns a text without the secrets of the machine.
func (m *Machine) Redact(text string) string { return plugin.NewLog(m.secrets()...).Redact(text) }
