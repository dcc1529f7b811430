package nodedriver

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/hub/nodedriver/sandbox"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/util/limitedyaml"
)

const (
	userDataPath = sandbox.Home + "/user-data"
	// scriptPath is where cloud-init puts the bootstrap script.
	scriptPath = "/usr/local/custom_script/install.sh"
	// maxUserData is how many bytes the user's cloud-config may have with all aliases written out.
	maxUserData = 2 << 20
)

// userDataFields are the fields of the flags for user data; nil if the driver has none. byPath takes the path of a file: it is the first
// with such a name, as it is for rancher-machine; harvester has cloud-config for the path, and then user-data for a text. Others, such as
// hetzner and cloudscale, have one for the text first, byText, and another one for the path.
func userDataFields(fields []schema.Field) (byPath, byText *schema.Field) {
	first := slices.IndexFunc(fields, namesUserData)
	if first < 0 {
		return nil, nil
	}
	name := fields[first].Flag.Name
	for i, field := range fields {
		if field.Flag.Name == name+"-file" || field.Flag.Name == name+"file" {
			return &fields[i], &fields[first]
		}
	}
	return &fields[first], nil
}

// namesUserData reports whether a flag is one for user data by its name.
func namesUserData(field schema.Field) bool {
	_, isText := field.Flag.Default.(string)
	return isText && slices.ContainsFunc([]string{"user-data", "userdata", "custom-data", "cloud-config"}, func(part string) bool {
		return strings.Contains(field.Flag.Name, part)
	})
}

// fromFile has a driver take its user data from a file, or none if there is no file, and returns what the user wrote. A flag such as
// vultr-cloud-init-from-file says that the one for user data has a path instead of the text.
func fromFile(fields []schema.Field, given map[string]any, file string) (users string) {
	byPath, byText := userDataFields(fields)
	if byPath == nil {
		return ""
	}
	users, _ = given[byPath.Flag.Name].(string)
	given[byPath.Flag.Name] = file
	if byText != nil {
		text, _ := given[byText.Flag.Name].(string)
		users, given[byText.Flag.Name] = cmp.Or(users, text), ""
	}
	for _, field := range fields {
		if _, isBool := field.Flag.Default.(bool); isBool && strings.HasSuffix(field.Flag.Name, "-from-file") {
			given[field.Flag.Name] = byText == nil && file != ""
		}
	}
	return users
}

// userData returns the user data of a machine: what the user wrote, and the bootstrap script after it.
func userData(hostname, users string, script []byte) ([]byte, error) {
	config := map[string]any{}
	switch {
	case strings.TrimSpace(users) == "":
	case strings.HasPrefix(users, "#!"):
		_, body, _ := strings.Cut(users, "\n")
		script = append([]byte(body+"\n\n"), script...)
	case strings.HasPrefix(users, "#cloud-config"):
		if err := limitedyaml.Check([]byte(users), maxUserData); err != nil {
			return nil, invalid("the user data: %v", err)
		}
		if err := yaml.Unmarshal([]byte(users), &config); err != nil {
			return nil, invalid("the user data is no YAML: write a cloud-config")
		}
	default:
		return nil, invalid(`the user data begins neither with "#cloud-config" nor with "#!": write the user data itself, not the path of a file`)
	}
	encoded, err := compress(script)
	if err != nil {
		return nil, err
	}
	file := map[string]any{"path": scriptPath, "permissions": "0600", "encoding": "gzip+b64", "content": encoded}
	for key, value := range map[string]any{"write_files": file, "runcmd": "sh " + scriptPath} {
		list, ok := config[key].([]any)
		if config[key] != nil && !ok {
			return nil, invalid("%s of the user data is no list", key)
		}
		config[key] = append(list, value)
	}
	if _, ok := config["hostname"]; !ok {
		config["hostname"] = hostname
	}
	out, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encoding the user data: %w", err)
	}
	return append([]byte("#cloud-config\n"), out...), nil
}

func compress(script []byte) (string, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	_, err := zipped.Write(script)
	if err = errors.Join(err, zipped.Close()); err != nil {
		return "", fmt.Errorf("compressing the bootstrap script: %w", err)
	}
	return base64.StdEncoding.EncodeToString(out.Bytes()), nil
}

// inSandbox returns the path of a file that a driver names, relative to the sandbox. A driver may name any path; links out of the sandbox
// lead nowhere.
func inSandbox(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }
