// A real NServiceBus endpoint that lines of JSON on stdin drive, and that says on stdout what it handled.
//   nsb NAME CONNECTION [option=value]...        README.md lists the options and the lines
using NServiceBus;

var options = new Options(args);

IEndpointInstance endpoint;
try { endpoint = await Endpoint.Start(Setup.Of(options)); }
catch (Exception e) { Report.Line(new { failed = e.ToString() }); return 1; }
Report.Line(new { started = options.Name });

await Commands.Run(endpoint);

await endpoint.Stop();
Report.Line(new { stopped = options.Name });
return 0;
