package bootstrapdata

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// scriptPath is where cloud-init puts the install script.
	scriptPath = "/usr/local/custom_script/install.sh"

	cloudConfigHeader = "#cloud-config"
	// jinjaHeader asks cloud-init to fill the document in first.
	jinjaHeader = "## template: jinja"
)

// cloudConfig merges the script into the user's cloud-config: the script is written and run before what the user writes and runs, and all
// other keys stay as they are. The document is changed as a tree, so that nothing of the user's is understood in another way than
// cloud-init does.
func cloudConfig(script []byte, userdata string) ([]byte, error) {
	headers, root, err := parseCloudConfig(userdata)
	if err != nil {
		return nil, err
	}
	packed, err := gzipped(script)
	if err != nil {
		return nil, err
	}
	file := mapping(
		scalar("path"), scalar(scriptPath),
		scalar("permissions"), quoted("0600"),
		scalar("encoding"), scalar("gz+b64"),
		scalar("content"), scalar(base64Text(packed)))
	if err := prepend(root, "write_files", file); err != nil {
		return nil, err
	}
	if err := prepend(root, "runcmd", scalar("sh "+scriptPath)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(strings.Join(headers, "\n") + "\n")
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(root), encoder.Close()); err != nil {
		return nil, fmt.Errorf("encoding the cloud-config: %w", err)
	}
	return b.Bytes(), nil
}

// otherForms are the beginnings of what cloud-init takes beside a cloud-config, and that cannot be merged with one.
var otherForms = []string{"#!", "#include", "#cloud-boothook", "#part-handler", "#cloud-config-archive", "#cloud-config-jsonp",
	"content-type:", "mime-version:"}

// parseCloudConfig returns the lines that must stand first, and the document as a mapping.
func parseCloudConfig(userdata string) (headers []string, root *yaml.Node, err error) {
	lines := strings.Split(strings.ReplaceAll(userdata, "\r\n", "\n"), "\n")
	for _, form := range otherForms {
		if strings.HasPrefix(strings.ToLower(lines[0]), form) {
			return nil, nil, invalid("it begins with %q; only a cloud-config can be merged with the hub's: write a document with keys such as "+
				"runcmd and write_files", form)
		}
	}
	if strings.TrimSpace(lines[0]) == jinjaHeader {
		headers, lines[0] = append(headers, jinjaHeader), ""
	}
	decoder := yaml.NewDecoder(strings.NewReader(strings.Join(lines, "\n")))
	document, next := &yaml.Node{}, &yaml.Node{}
	switch err := decoder.Decode(document); {
	case errors.Is(err, io.EOF):
		document.Content = []*yaml.Node{mapping()}
	case err != nil:
		return nil, nil, invalid("it is not valid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	case decoder.Decode(next) == nil:
		return nil, nil, invalid("it holds more than one YAML document; write all keys into one")
	}
	root = document.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		root = mapping()
	}
	if root.Kind != yaml.MappingNode {
		return nil, nil, invalid("it is not a cloud-config: write keys such as runcmd and write_files")
	}
	if err := checkKeys(root); err != nil {
		return nil, nil, err
	}
	root.HeadComment = withoutHeader(root.HeadComment)
	if len(root.Content) > 0 {
		root.Content[0].HeadComment = withoutHeader(root.Content[0].HeadComment)
	}
	return append(headers, cloudConfigHeader), root, nil
}

// checkKeys refuses what YAML leaves to the reader: of a key that is there twice, cloud-init would drop one.
func checkKeys(root *yaml.Node) error {
	seen := map[string]bool{}
	for i := 0; i < len(root.Content); i += 2 {
		key := root.Content[i]
		if seen[key.Value] {
			return invalid("line %d: the key %s is there twice; write it once", key.Line, key.Value)
		}
		seen[key.Value] = true
	}
	return nil
}

// withoutHeader takes the line that is written again out of a comment.
func withoutHeader(comment string) string {
	first, rest, _ := strings.Cut(comment, "\n")
	if strings.TrimSpace(first) != cloudConfigHeader {
		return comment
	}
	return rest
}
