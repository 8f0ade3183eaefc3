package nodesim

import (
	"drydock.dev/drydock/nodesim/volumeplugin"
	"drydock.dev/drydock/nodesim/volumeplugin/configmap"
	"drydock.dev/drydock/nodesim/volumeplugin/downwardapi"
	"drydock.dev/drydock/nodesim/volumeplugin/emptydir"
	"drydock.dev/drydock/nodesim/volumeplugin/flexvolume"
	"drydock.dev/drydock/nodesim/volumeplugin/hostpath"
	"drydock.dev/drydock/nodesim/volumeplugin/projected"
	"drydock.dev/drydock/nodesim/volumeplugin/secret"
)

// registry knows all plugins, and finds FlexVolume drivers when they are asked for.
func (l *life) registry() *volumeplugin.Registry {
	r := volumeplugin.NewRegistry(l.allPlugins()...)
	r.Probe(func(known func(string) bool) []volumeplugin.Plugin {
		return flexvolume.Probe(l.ctx, l.host, l.c.Root, known)
	})
	return r
}

// allPlugins are the kinds of volume this node has.
func (l *life) allPlugins() []volumeplugin.Plugin {
	return []volumeplugin.Plugin{
		l.csi, emptydir.New(l.host), hostpath.New(l.c.Root), configmap.New(l.host), secret.New(l.host),
		downwardapi.New(l.host), projected.New(l.host),
	}
}
