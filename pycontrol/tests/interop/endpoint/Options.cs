// The command line: NAME CONNECTION, then key=value, where `route` may stand several times.
public class Options
{
    readonly ILookup<string, string> values;

    public Options(string[] args)
    {
        Name = args[0];
        Connection = args[1];
        values = args.Skip(2).Select(a => a.Split('=', 2)).ToLookup(a => a[0], a => a[1]);
    }

    public string Name { get; }
    public string Connection { get; }
    public bool Has(string key) => values[key].Any();
    public string One(string key, string otherwise) => values[key].FirstOrDefault() ?? otherwise;
    public IEnumerable<string> All(string key) => values[key];
}
