package lab

import "context"

// toolboxLinks are the names by which the toolbox is called in a container.
var toolboxLinks = []string{"serve", "terminal", "tar", "test", "cat", "sha256sum"}

// PushToolbox puts the image that scenarios run in clusters, see e2e/cmd/toolbox, into the lab's registry, from which these pull it.
func (l *Lab) PushToolbox(ctx context.Context) error {
	return l.PushProgram(ctx, toolbox(l.bin("toolbox")))
}

// toolbox is the image with the program in a file.
func toolbox(file string) Program {
	return Program{Image: "drover/toolbox:1", File: file, Path: "/bin/toolbox", Links: toolboxLinks, Entrypoint: "/bin/serve"}
}
