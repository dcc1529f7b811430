package clusterctl

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/hub/api/provider"
)

//go:embed clusterctl.yaml
var configText string

var config = template.Must(template.New("clusterctl.yaml").Parse(configText))

//go:embed metadata.yaml
var metadata []byte

// directory is the one in an archive. It is the same for all versions, so that a later one, unpacked over it, adds a version.
const directory = "drover-clusterctl"

// coreLabel is the directory of the core provider. clusterctl knows no other one.
const coreLabel = "cluster-api"

var versionPattern = regexp.MustCompile(`^v(\d+)\.(\d+)\.\d+([-+].*)?$`)

// Release is what a repository is for.
type Release struct {
	// Version is that of the providers, such as v1.2.3.
	Version string
	// HubVersion is that of the programs. With "-" for "+" it is the tag of the images. Default: Version.
	HubVersion string
	// ClusterAPI is the version of Cluster API that the hub is built with, such as v1.2.3.
	ClusterAPI string
}

// tag returns the tag of the images.
func (r Release) tag() string { return strings.ReplaceAll(cmp.Or(r.HubVersion, r.Version), "+", "-") }

// Repository returns the files of a repository for clusterctl with one release, by their paths.
func Repository(r Release) (map[string][]byte, error) {
	version, clusterAPI := r.Version, r.ClusterAPI
	if err := checkMetadata(version); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, embedded := range map[string]bool{"clusterctl.yaml": false, "clusterctl-embedded.yaml": true} {
		var content bytes.Buffer
		err := config.Execute(&content, map[string]any{"Name": name, "Embedded": embedded, "Version": version, "ClusterAPI": clusterAPI})
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", name, err)
		}
		files[name] = content.Bytes()
	}
	core, err := CoreComponents()
	if err != nil {
		return nil, err
	}
	match := versionPattern.FindStringSubmatch(clusterAPI)
	if match == nil {
		return nil, fmt.Errorf("the version of Cluster API must be like v1.2.3, got %q", clusterAPI)
	}
	files[path.Join(coreLabel, clusterAPI, "core-components.yaml")] = core
	files[path.Join(coreLabel, clusterAPI, "metadata.yaml")] = fmt.Appendf(nil,
		"apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n  - {major: %s, minor: %s, contract: v1beta2}\n",
		match[1], match[2])
	for _, p := range provider.All() {
		content, err := Components(p, r.tag())
		if err != nil {
			return nil, err
		}
		files[path.Join(p.Value(), version, string(p)+"-components.yaml")] = content
		files[path.Join(p.Value(), version, "metadata.yaml")] = metadata
	}
	templates, err := ClusterTemplates()
	if err != nil {
		return nil, err
	}
	for name, content := range templates {
		files[path.Join(provider.Infrastructure.Value(), version, name)] = content
	}
	return files, nil
}

// checkMetadata returns an error if clusterctl would not find out what contract the version implements.
func checkMetadata(version string) error {
	match := versionPattern.FindStringSubmatch(version)
	if match == nil {
		return fmt.Errorf("the version must be like v1.2.3, got %q", version)
	}
	var content struct {
		ReleaseSeries []struct{ Major, Minor int }
	}
	if err := yaml.Unmarshal(metadata, &content); err != nil {
		return fmt.Errorf("decoding metadata.yaml: %w", err)
	}
	for _, series := range content.ReleaseSeries {
		if strconv.Itoa(series.Major) == match[1] && strconv.Itoa(series.Minor) == match[2] {
			return nil
		}
	}
	return fmt.Errorf("packaging/clusterctl/metadata.yaml has no releaseSeries for %s: add one with major %s and minor %s", version, match[1],
		match[2])
}

// WriteArchive writes files as a compressed archive: the same files and time give the same bytes.
func WriteArchive(to io.Writer, files map[string][]byte, at time.Time) error {
	compressed := gzip.NewWriter(to)
	archive := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{
			Format: tar.FormatUSTAR, Name: path.Join(directory, name), Mode: 0o644, Size: int64(len(files[name])), ModTime: at.UTC(),
		}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		if _, err := archive.Write(files[name]); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	if err := compressed.Close(); err != nil {
		return fmt.Errorf("compressing the archive: %w", err)
	}
	return nil
}
