package nodesim

import (
	"drydock.dev/drydock/nodesim/volumeplugin"
	"drydock.dev/drydock/nodesim/volumeplugin/configmap"
	"drydock.dev/drydock/nodesim/volumeplugin/downwardapi"
	"drydock.dev/drydock/nodesim/volumeplugin/emptydir"
	"drydock.dev/drydock/nodesim/volumeplugin/hostpath"
	"drydock.dev/drydock/nodesim/volumeplugin/projected"
	"drydock.dev/drydock/nodesim/volumeplugin/secret"
)

// allPlugins are the kinds of volume this node has.
func (l *life) allPlugins() []volumeplugin.Plugin {
	return []volumeplugin.Plugin{
		l.csi, emptydir.New(l.host), hostpath.New(l.c.Root), configmap.New(l.host), secret.New(l.host),
		downwardapi.New(l.host), projected.New(l.host),
	}
}
