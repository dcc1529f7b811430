package lab

import (
	"archive/tar"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

func TestProgramImageHoldsItsLinks(t *testing.T) {
	image, err := programImage(toolbox(""), []byte("program"))
	if err != nil {
		t.Fatal(err)
	}
	content := mutate.Extract(image)
	defer content.Close()
	var names []string
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
	for _, link := range append([]string{"toolbox"}, toolboxLinks...) {
		if !slices.Contains(names, "bin/"+link) {
			t.Errorf("no bin/%s among %v", link, names)
		}
	}
	config, err := image.ConfigFile()
	if err != nil || config.Config.User != "65534:65534" || config.Config.Entrypoint[0] != "/bin/serve" || config.OS != "linux" {
		t.Errorf("%+v, %v", config, err)
	}
}
