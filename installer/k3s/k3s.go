// Package k3s defines the image system-agent-installer-k3s: its run.sh and the files of a k3s release it holds.
package k3s

import (
	_ "embed"

	"github.com/drover-dev/drover/installer/layout"
)

//go:embed run.sh
var runScript []byte

// Definition returns what the image consists of. The names are those of the files of a k3s release.
func Definition() layout.Definition {
	return layout.Definition{Runtime: "k3s", Title: "k3s", RunScript: runScript, Artifacts: artifacts}
}

func artifacts(arch string) []layout.Artifact {
	program := "k3s"
	if arch != "amd64" {
		program = "k3s-" + arch
	}
	return []layout.Artifact{
		{Names: []string{program}, Path: "k3s", Mode: 0o755},
		{Images: true, Names: layout.ImageArchives("k3s-airgap-images-" + arch), Mode: 0o644},
	}
}
